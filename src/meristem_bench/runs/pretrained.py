"""Weights trained elsewhere, from a file, as the start of a model: what fits by name and shape is taken over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from meristem.errors import FileError
from meristem_bench.models.torchvision_names import from_torchvision

_NAMED = 4  # tensors of each kind that a note names
_FORMS = "give a state dict that torch.save has written, or a .safetensors file"


@torch.no_grad()
def load_pretrained(model: nn.Module, file: str) -> str:
    """Copy into the model what fits of the tensors in ``file``; returns in one sentence what did and what did not.

    Names are the model's own or those of torchvision's ResNets. What has another shape, a classifier for other
    classes, stays as built, and so does what the file lacks.
    """
    own = model.state_dict()
    found = {name if name in own else from_torchvision(name): value for name, value in _read(Path(file)).items()}
    fitting = [name for name, value in found.items() if name in own and own[name].shape == value.shape]
    if not any(own[name].dim() for name in fitting):  # a counter fits any other
        raise FileError(
            f"pretrained={file}: no tensor in it fits the model; the file has {_listed(list(found))}, the model "
            f"{_listed(list(own))}: give weights of that network"
        )
    for name in fitting:
        own[name].copy_(found[name])
    kinds = {
        "of another shape in the file": [name for name in own if name in found and name not in fitting],
        "not in the file": [name for name in own if name not in found],
        "only in the file": [name for name in found if name not in own],
    }
    others = [f"; {words}: {_listed(names)}" for words, names in kinds.items() if names]
    return f"pretrained: {len(fitting)} of {len(own)} tensors are from {file}{''.join(others)}"


def _read(path: Path) -> Mapping[str, Tensor]:
    """The tensors of a file by name. Nothing in it is executed."""
    if not path.is_file():
        raise FileError(f"pretrained={path} is no file; {_FORMS}")
    try:
        content: Any = (
            load_file(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except Exception as error:  # a damaged file can make torch fail in any way
        raise FileError(f"pretrained={path} cannot be read ({type(error).__name__}); {_FORMS}") from None
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise FileError(f"pretrained={path} holds something else than tensors by name; {_FORMS}")
    return content


def _listed(names: Sequence[str]) -> str:
    """
    >>> _listed(["a", "b", "c", "d", "e", "f"])
    'a, b, c, d and 2 more'
    """
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (", ".join(names[:_NAMED]) or "none") + more
