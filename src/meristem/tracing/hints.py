"""What a small change of the model would free: notes about attention whose sizes hang together by how it is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from torch import nn

from meristem.tracing.observations import GridView

_TIED = (
    "its heads are those of all such layers and of the width it reads, because it computes the size of a head from it; "
    "with the size kept in an attribute (view(B, T, n_head, self.head_dim), and chunk(3) for split(n_embd)) the "
    "heads of each layer are a group of their own"
)
_SIZED = (
    "the size of its heads is pinned, because a number is computed from it in a way that is not followed; a softmax "
    "scale kept in an attribute (scores * self.scale) would free it"
)
_SEE = "see 'Write your model so that it can grow' in the docs"


class Hints:
    """Hints by class of layer; a hint about a tie goes when the tie is undone."""

    def __init__(self, grids: Iterable[GridView]) -> None:
        self._paths: dict[type[nn.Module], list[str]] = {}
        for grid in grids:
            paths = self._paths.setdefault(grid.layer, [])
            if grid.path not in paths:
                paths.append(grid.path)
        self._tied: dict[type[nn.Module], None] = {}
        self._sized: dict[type[nn.Module], None] = {}

    def tied(self, layers: Collection[type[nn.Module]]) -> None:
        self._tied.update(dict.fromkeys(sorted(layers, key=lambda layer: layer.__qualname__)))

    def untied(self, layers: Collection[type[nn.Module]]) -> None:
        for layer in layers:
            self._tied.pop(layer, None)

    def sized(self, layers: Collection[type[nn.Module]]) -> None:
        """A number is computed from the size of a head."""
        self._sized.update(dict.fromkeys(sorted(layers, key=lambda layer: layer.__qualname__)))

    def notes(self) -> list[str]:
        told = ((self._tied, _TIED), (self._sized, _SIZED))
        return [f"{self._where(layer)}: {hint}; {_SEE}" for layers, hint in told for layer in layers]

    def _where(self, layer: type[nn.Module]) -> str:
        first, *more = self._paths[layer]
        return (first or layer.__name__) + (f" and {len(more)} more" if more else "")
