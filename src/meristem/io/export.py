"""Hand the model back: a plain copy with the gates folded in, files to keep it in, and a way to load them."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from meristem.errors import FileError, SurgeryError
from meristem.gating.unit_gates import Gates
from meristem.io.atomic import replace_file
from meristem.io.pretrained_config import describe_in_config
from meristem.space.absent_blocks import DROPPED, REPLACED, leave_out
from meristem.space.held_tensors import held_tensors
from meristem.space.nested_tensors import leave_shortcut
from meristem.space.paths import is_inside, split_path
from meristem.space.remembered_sizes import write_size
from meristem.surgery.live import Live
from meristem.surgery.model_tensors import is_channels_last

WEIGHTS, ARCHITECTURE = "model.safetensors", "architecture.json"
_FORMAT = "meristem-architecture-1"


def export(live: Live, gates: Gates | None = None, shut: Collection[str] = ()) -> nn.Module:
    """Return a deep copy of the live model as it is now: original classes, gates folded into the weights, no hooks.

    In evaluation mode it computes what the live model computes. Gradients are not copied, nor is the way back from what
    modules have kept of a forward pass. ``shut`` are the depth groups of live blocks that do not take part: they are
    left out. The config of a model of transformers says its sizes.
    """
    plain = _plain(live, gates, shut)
    describe_in_config(plain, live)
    return plain


def _plain(live: Live, gates: Gates | None, shut: Collection[str]) -> nn.Module:
    with gates.paused() if gates is not None else nullcontext():
        plain = _copy(live.model)
    if gates is not None:
        gates.fold(plain)
    for group in shut:
        leave_out(plain, live.space.blocks[group].path, live.space.blocks[group].way)
    return plain


def check_copyable(model: nn.Module) -> None:
    """Refuse a model that cannot be exported in the end: a hook of torch's old kind makes its weights at every call."""
    for path, module in model.named_modules():
        for hook in module._forward_pre_hooks.values():
            kind = type(hook).__name__
            if type(hook).__module__.startswith("torch.nn.utils.") and kind in ("WeightNorm", "SpectralNorm"):
                function = {"WeightNorm": "weight_norm", "SpectralNorm": "spectral_norm"}[kind]
                raise SurgeryError(
                    f"{path or 'the model'} has torch.nn.utils.{function}, with which a model cannot be copied and so "
                    f"not be exported; use torch.nn.utils.parametrizations.{function}"
                )


def _copy(model: nn.Module) -> nn.Module:
    computed = [place.read() for places in held_tensors(model).values() for place in places[:1]]
    memo = {id(tensor): tensor.detach().clone() for tensor in computed if tensor.grad_fn is not None}
    try:
        plain = copy.deepcopy(model, memo)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise SurgeryError(f"the model cannot be copied, so it cannot be exported: {reason}") from None
    plain.zero_grad(set_to_none=True)
    return plain


def save(live: Live, folder: str | Path, gates: Gates | None = None, shut: Collection[str] = ()) -> None:
    """Write the exported model to ``folder``: weights as safetensors, the architecture as readable JSON."""
    folder = Path(folder)
    plain = _plain(live, gates, shut)
    absent = {*live.tree.absent, *(live.space.blocks[group].path for group in shut)}
    tensors = {}
    for name in live.space.tensors:
        if _is_inside_any(name, absent):
            continue
        path, leaf = split_path(name)
        tensor = getattr(plain.get_submodule(path), leaf)
        tensors[name] = tensor.detach().to("cpu").contiguous().clone()
    written = {name: _as_real(tensor) for name, tensor in tensors.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / WEIGHTS, lambda path: save_file(written, path, metadata={"format": _FORMAT}))
        architecture = {**_architecture(live, tensors, absent), "weights_sha256": _digest(folder / WEIGHTS)}
        text = json.dumps(architecture, indent=1)
        replace_file(folder / ARCHITECTURE, lambda path: path.write_text(text, encoding="utf-8"))
    except (OSError, SafetensorError) as error:
        raise FileError(
            f"the network cannot be written to {folder} ({error}); free some space or give another"
        ) from None


def _as_real(tensor: Tensor) -> Tensor:
    """Numbers that safetensors has no type for, as pairs of real ones."""
    return torch.view_as_real(tensor) if tensor.dtype is torch.complex128 else tensor


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
        return digest.hexdigest()


def _architecture(live: Live, tensors: Mapping[str, Tensor], absent: Collection[str]) -> dict[str, Any]:
    space = live.space
    left_out = {group for group, block in space.blocks.items() if block.path in absent}
    masks = {name: mask & (name not in left_out) for name, mask in live.masks.items()}
    return {
        "format": _FORMAT,
        "groups": {
            name: {"kind": group.kind, "units": group.units, "live": masks[name].nonzero()[0].tolist()}
            for name, group in space.groups.items()
        },
        "sizes": [
            {
                "module": size.module,
                "name": size.name,
                "index": size.index,
                "value": len(live.positions(size.axis)),
            }
            for size in space.attributes
            if size.module not in absent and not _is_inside_any(size.module, absent)
        ],
        "absent": {block.path: block.way for block in space.blocks.values() if block.path in absent},
        "tensors": {
            name: {
                "full": list(spec.shape),
                "live": list(tensors[name].shape),
                "dtype": str(tensors[name].dtype).removeprefix("torch."),
                "names": list(spec.names),
            }
            for name, spec in space.tensors.items()
            if name in tensors
        },
    }


def _is_inside_any(name: str, blocks: Collection[str]) -> bool:
    """Tell whether a tensor or a module lies in one of the blocks."""
    return any(is_inside(name, block) for block in blocks)


def load(folder: str | Path, model: nn.Module) -> nn.Module:
    """Resize ``model``, freshly made at full size, to what was saved in ``folder`` and give it the saved weights.

    The model is changed in place and returned. It is not traced. If the files do not fit, nothing is changed.
    """
    folder = Path(folder)
    architecture, weights = read_files(folder)
    misfit = f"{folder} does not fit this {type(model).__name__}"
    tensors = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    absent = architecture.get("absent", {})
    if unknown := [path for path in absent if not any(is_inside(name, path) for name in tensors)]:
        raise FileError(f"{misfit}: it has no block {unknown[0]}")
    tensors = {name: tensor for name, tensor in tensors.items() if not _is_inside_any(name, absent)}
    _check_names(misfit, architecture["tensors"], tensors)
    _check_shapes(misfit, folder, architecture["tensors"], tensors, weights)
    _check_sizes(misfit, architecture["sizes"], model)
    _fill(model, architecture, weights, tensors)
    return model


def _check_names(misfit: str, saved: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Refuse files whose tensors have other names, or share other names, than those of the model."""
    saved_names = {alias for entry in saved.values() for alias in entry["names"]}
    missing, extra = sorted(saved_names - set(tensors)), sorted(set(tensors) - saved_names)
    if missing or extra:
        reasons = [f"the model lacks {_few(missing)}"] * bool(missing) + [f"the file lacks {_few(extra)}"] * bool(extra)
        raise FileError(f"{misfit}: {'; '.join(reasons)}")
    aliases = {_same_as(tensor, tensors) for tensor in tensors.values()}
    saved_aliases = {frozenset(entry["names"]) for entry in saved.values()}
    if aliases != saved_aliases:
        shared = max(aliases ^ saved_aliases, key=len)
        here, there = ("model", "file") if shared in aliases else ("file", "model")
        raise FileError(
            f"{misfit}: {' and '.join(sorted(shared))} are one tensor in the {here}, but not in the {there}"
        )


def _check_shapes(
    misfit: str, folder: Path, saved: Mapping[str, Any], tensors: Mapping[str, Tensor], weights: Mapping[str, Tensor]
) -> None:
    """Refuse files that were saved from a model of another size, and weights of another architecture."""
    for name, entry in saved.items():
        shape = list(tensors[name].shape)
        if shape != entry["full"]:
            raise FileError(
                f"{misfit}: {name} is {shape} in the model and {entry['full']} in the full-size model that was saved; "
                f"make the model with the same arguments"
            )
        if name not in weights or list(weights[name].shape) != entry["live"]:
            saved_shape = list(weights[name].shape) if name in weights else "missing"
            raise FileError(
                f"{folder / WEIGHTS} does not belong to {ARCHITECTURE}: {name} is {saved_shape}, expected "
                f"{entry['live']}"
            )


def _check_sizes(misfit: str, sizes: Sequence[Mapping[str, Any]], model: nn.Module) -> None:
    """Refuse files with sizes that no module of the model remembers."""
    for size in sizes:
        try:
            module = model.get_submodule(size["module"])
        except AttributeError:
            module = None
        value = getattr(module, size["name"], None) if module is not None else None
        index = size["index"]
        if not isinstance(value, int if index is None else (tuple, list)) or (index or 0) >= len(_entries(value)):
            where = f"{size['module']}.{size['name']}" + ("" if index is None else f"[{index}]")
            raise FileError(f"{misfit}: it has no {where}")


def _same_as(tensor: Tensor, tensors: Mapping[str, Tensor]) -> frozenset[str]:
    return frozenset(name for name, other in tensors.items() if other is tensor)


def _entries(value: Any) -> Any:
    return value if isinstance(value, (tuple, list)) else (value,)


def _fill(model: nn.Module, architecture: Any, weights: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    for path, way in architecture.get("absent", {}).items():
        leave_out(model, path, way)
    held = held_tensors(model)
    for name, entry in architecture["tensors"].items():
        old = tensors[name]
        value: Tensor = weights[name].to(old.device)
        if is_channels_last(old):
            value = value.contiguous(memory_format=torch.channels_last)
        new = nn.Parameter(value, requires_grad=old.requires_grad) if isinstance(old, nn.Parameter) else value
        for alias in entry["names"]:
            path, leaf = split_path(alias)
            setattr(model.get_submodule(path), leaf, new)
        for place in held.get(id(old), ()):
            place.write(new)
    for size in architecture["sizes"]:
        write_size(model.get_submodule(size["module"]), size["name"], size["index"], size["value"])
    leave_shortcut(model)


def read_files(folder: Path) -> tuple[Any, dict[str, Tensor]]:
    """Return the architecture and the weights that :func:`save` wrote, checked but not compared with a model."""
    for name in (ARCHITECTURE, WEIGHTS):
        if not (folder / name).is_file():
            raise FileError(f"{folder} holds no {name}; give the folder that save() wrote")
    try:
        architecture = json.loads((folder / ARCHITECTURE).read_text(encoding="utf-8"))
        if architecture["format"] != _FORMAT:
            raise FileError(f"{folder / ARCHITECTURE} has the format {architecture['format']!r}, expected {_FORMAT!r}")
        _check_types(architecture)
    except (ValueError, TypeError, KeyError) as error:
        raise FileError(
            f"{folder / ARCHITECTURE} is damaged ({type(error).__name__}: {error}); save it again"
        ) from None
    try:
        with safe_open(folder / WEIGHTS, framework="pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError) as error:
        raise FileError(f"{folder / WEIGHTS} is damaged ({error}); save it again") from None
    for name, entry in architecture["tensors"].items():
        if entry["dtype"] == "complex128" and name in weights:
            weights[name] = torch.view_as_complex(weights[name])
    if architecture.get("weights_sha256") not in (None, _digest(folder / WEIGHTS)):
        raise FileError(f"{folder / WEIGHTS} is damaged, or not the one {ARCHITECTURE} was written with; save it again")
    return architecture, weights


def _check_types(architecture: Any) -> None:
    """Raise if a field that :func:`load` uses is missing or has another type than it must have."""
    if not isinstance(architecture["tensors"], dict) or not isinstance(architecture["sizes"], list):
        raise TypeError("tensors must be an object and sizes a list")
    if not set(architecture.get("absent", {}).values()) <= {REPLACED, DROPPED}:
        raise TypeError("how an absent block is left out is not understood")
    for name, entry in architecture["tensors"].items():
        if name not in entry["names"]:
            raise TypeError(f"the tensor {name} is not among its own names")
        if not all(isinstance(size, int) for key in ("full", "live") for size in entry[key]):
            raise TypeError("a tensor's shape is not a list of whole numbers")
        if not all(isinstance(name, str) for name in entry["names"]):
            raise TypeError("a tensor's names are not strings")
    for size in architecture["sizes"]:
        if not (isinstance(size["module"], str) and isinstance(size["name"], str) and isinstance(size["value"], int)):
            raise TypeError("an entry of sizes is not understood")
        if size["index"] is not None and not (isinstance(size["index"], int) and size["index"] >= 0):
            raise TypeError("an index in sizes is not a whole number")


def _few(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
