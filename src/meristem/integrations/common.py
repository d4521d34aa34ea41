"""What the integrations share: a checkpoint holds a network that has grown, and resuming meets a full-size one.

A framework builds the full-size model anew and loads weights, optimizer and scheduler from its checkpoint. The weights
have the sizes of the network as it had grown by then, so they do not fit, and not even their number of units says which
units they are. The state of the grower knows; it has the weights, too. So weights that do not fit are let pass until
the grower is made, which then becomes what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from meristem.errors import FileError, MeristemError
from meristem.grower import Grower
from meristem.io.atomic import replace_file

FILE = "meristem-grower.pt"  # in the folder of a checkpoint


class LetPass:
    """Lets weights pass that ``load_state_dict`` of a full-size model is given and that do not fit; until :meth:`stop`.

    What passed has to come from the state of a grower: see :meth:`check`. ``missing`` weights, of blocks that were
    absent, pass too. ``before`` is called with the weights before anything else.
    """

    def __init__(
        self, model: nn.Module, *, missing: bool, before: Callable[[Mapping[str, Any]], None] = lambda weights: None
    ) -> None:
        self._loaded: dict[str, Tensor] = {}
        self._passed: list[str] = []
        self._active = active = [True]
        loaded, passed = self._loaded, self._passed

        # A plain function, because a copy of the model copies its hooks, and with them what they belong to.
        def let_pass(module: nn.Module, weights: dict[str, Any], prefix: str, *more: Any) -> None:
            if not active:
                return
            before(weights)
            for name, own in module.state_dict(keep_vars=True).items():
                given = weights.get(prefix + name)
                if not isinstance(own, Tensor):
                    continue
                if isinstance(given, Tensor):
                    loaded[name] = given
                if given.shape != own.shape if isinstance(given, Tensor) else missing:
                    passed.append(name)
                    weights[prefix + name] = own.detach().clone()

        self._handle = model.register_load_state_dict_pre_hook(let_pass)  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Weights have to fit again."""
        self._handle.remove()
        self._active.clear()  # of copies of the model, which have the hook as well
        self._loaded.clear()

    def check(self, kept: Mapping[str, Any] | None, source: str, *, exact: bool) -> None:
        """Refuse weights that passed, or are not those of the state ``kept`` of a grower, which has them all.

        ``exact``: with these numbers; weights that a framework has averaged agree in their sizes alone.
        """
        if kept is None:
            if self._passed:
                raise FileError(
                    f"the checkpoint holds a network that has grown ({self._passed[0]} does not fit the full model), "
                    f"but {source}; resume from a checkpoint that was written while the same callback was in use"
                )
            return
        tensors = kept["growth"]["live"]["tensors"]
        for name, loaded in self._loaded.items():
            own = tensors.get(name)
            if own is not None and (own.shape != loaded.shape or (exact and not torch.equal(own.cpu(), loaded.cpu()))):
                raise FileError(
                    f"the state of the grower belongs to another checkpoint than the weights: {name} differs; resume "
                    f"from a checkpoint whose files were written together"
                )


def refuse_several_processes(count: int) -> None:
    """Refuse to grow in a distributed run of a framework."""
    if count > 1:
        raise MeristemError(
            f"this run has {count} processes, but the framework does not show callbacks its wrapper of the model, so "
            f"that cannot follow; grow in one process, with Lightning or accelerate, or in a loop of your own "
            f"(docs/distributed.md)"
        )


def write_state(grower: Grower, folder: str | Path) -> None:
    """Write the state of a grower into the folder of a checkpoint."""
    replace_file(Path(folder) / FILE, lambda path: torch.save(grower.state_dict(), path))


def read_state(folder: str | Path) -> dict[str, Any]:
    """Read what :func:`write_state` wrote."""
    path = Path(folder) / FILE
    if not path.is_file():
        raise FileError(
            f"{folder} has no {FILE}: it was written without a grower, or the run was killed while it was written; "
            f"resume from another checkpoint"
        )
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def as_dtype(inputs: Any, dtype: torch.dtype) -> Any:
    """Example inputs in the precision that a framework has given the model."""
    if isinstance(inputs, Tensor):
        return inputs.to(dtype) if inputs.is_floating_point() else inputs
    if isinstance(inputs, Mapping):
        return {name: as_dtype(value, dtype) for name, value in inputs.items()}
    return type(inputs)(as_dtype(value, dtype) for value in inputs) if isinstance(inputs, (tuple, list)) else inputs
