"""The state of a sharded run in a folder: every rank writes its parts of the tensors that are sharded.

These go through torch.distributed.checkpoint, all else into one file of `io/checkpoint.py`. A new folder takes the
place of the old one once it is complete. All ranks call both functions.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import Tensor
from torch.utils._pytree import tree_map_only

from meristem.distributed.agreement import gathered
from meristem.distributed.shards import is_sharded
from meristem.errors import FileError
from meristem.io import checkpoint

_REST = "rest.ckpt"
_MARK = "sharded tensor"


def write(path: str | Path, state: dict[str, Any], *, kind: str) -> None:
    """Store ``state`` in the folder ``path``; what it has under ``random`` is each rank's own."""
    path, sharded = Path(path), dict[str, Tensor]()
    if path.is_file():
        raise FileError(f"{path} is a file, but the checkpoint of a sharded run is a folder; give another path")

    def marked(tensor: Tensor) -> Any:
        if not is_sharded(tensor):
            return tensor
        sharded[name := str(len(sharded))] = tensor
        return {_MARK: name, "shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}

    rest = {**tree_map_only(Tensor, marked, state), "random": gathered(state["random"])}
    beside, leads = path.with_name(f".{path.name}.part"), torch.distributed.get_rank() == 0
    if leads:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
    torch.distributed.barrier()
    _save(sharded, beside)
    if leads:
        checkpoint.write(beside / _REST, rest, kind=kind)
        _replace(path, beside)
    torch.distributed.barrier()


def read(path: str | Path, *, kind: str) -> dict[str, Any]:
    """Return the state that `write` stored in ``path``, with whole tensors and the random numbers of this rank."""
    path = Path(path)
    if not path.exists() and _old(path).exists():  # the run was killed between two moves
        path = _old(path)
    if path.is_file():
        raise FileError(f"{path} is a file, but the checkpoint of a sharded run is a folder; give that")
    rest: dict[str, Any] = checkpoint.read(path / _REST, kind=kind)
    tensors: dict[str, Tensor] = {}
    state: dict[str, Any] = _with_tensors(rest, tensors)
    _load(tensors, path)
    ranks = torch.distributed.get_world_size()
    if len(rest["random"]) != ranks:
        raise FileError(f"{path} was written by {len(rest['random'])} processes, but here are {ranks}; start as many")
    state["random"] = state["random"][torch.distributed.get_rank()]
    return state


def _with_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The state with empty tensors where marks are, which are ``tensors`` by name."""
    if isinstance(value, dict):
        if _MARK in value:
            tensors[value[_MARK]] = torch.empty(value["shape"], dtype=getattr(torch, value["dtype"]))
            return tensors[value[_MARK]]
        return {key: _with_tensors(inner, tensors) for key, inner in value.items()}
    return type(value)(_with_tensors(inner, tensors) for inner in value) if isinstance(value, (list, tuple)) else value


def _save(tensors: dict[str, Tensor], folder: Path) -> None:
    from torch.distributed.checkpoint.state_dict_saver import save  # slow to import, and few need it

    save(dict(tensors), checkpoint_id=folder)


def _load(tensors: dict[str, Tensor], folder: Path) -> None:
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict_loader import load

    try:
        load(dict(tensors), checkpoint_id=folder)
    except CheckpointException as error:  # which is no Exception
        reason = str(next(iter(error.failures.values()))[0]).partition("\n")[0]
        raise FileError(f"{folder} is damaged ({reason}); use an earlier checkpoint") from None


def _replace(path: Path, beside: Path) -> None:
    """Put the new folder in the place of the old one, of which something is there at every moment."""
    shutil.rmtree(_old(path), ignore_errors=True)
    if path.exists():
        path.rename(_old(path))
    beside.rename(path)
    shutil.rmtree(_old(path), ignore_errors=True)


def _old(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")
