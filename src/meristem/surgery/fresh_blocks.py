"""What the tensors of a fresh block start with, if the rule for fresh units says something about blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from meristem.space.arrays import BoolArray
from meristem.space.space import Role, Space
from meristem.surgery.fresh import Fresh, LayerPart
from meristem.surgery.module_tree import ModuleTree

_MIXING = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)  # layers whose outputs may just be their inputs


class FreshBlockValues:
    """Asks such a rule about the tensors it concerns; ``seed`` is that of its random numbers, if it draws some."""

    def __init__(self, tree: ModuleTree, space: Space, seed: int) -> None:
        self._seed, self._plain, self._norms = seed, _plain_layers(tree, space), _last_norms(tree, space)

    def values(self, rule: Fresh, name: str, built: Tensor, grown: Mapping[str, BoolArray]) -> Tensor | None:
        """Return the values of a trained tensor if its block is grown and the rule says what they are, else None."""
        values = None
        if name in self._plain:
            block, part = self._plain[name]
            values = rule.plain(part, built) if grown[block][0] else None
        if values is None and name in self._norms and grown[self._norms[name]][0]:
            values = rule.last_norm(name, built, self._seed)
        return values


def _plain_layers(tree: ModuleTree, space: Space) -> dict[str, tuple[str, LayerPart]]:
    """The tensors of layers in blocks without a shortcut, with the group of the block and their role in the layer."""
    parts: dict[str, tuple[str, LayerPart]] = {}
    made_groups = {site.tensor: site.axis.groups for site in space.sites if Role.OUT in site.roles}
    for group, block in space.blocks.items():
        inside = {}
        for path, module in tree.module(block.path).named_modules(prefix=block.path) if block.plain else ():
            if isinstance(module, _BatchNorm):
                weight, bias = LayerPart.SCALE, LayerPart.SHIFT
            elif isinstance(module, _MIXING) and getattr(module, "groups", 1) == 1:
                weight, bias = LayerPart.WEIGHT, LayerPart.BIAS
            else:
                continue
            inside.update({f"{path}.weight": (group, weight), f"{path}.bias": (group, bias)})
        weights = [name for name, (_, part) in inside.items() if part is LayerPart.WEIGHT]
        if _are_disjoint([set(made_groups.get(name, ())) - {group} for name in weights]):
            parts.update(inside)
    return parts


def _are_disjoint(made_groups: Sequence[set[str]]) -> bool:
    """Tell whether no two layers make the same units: where they are added, each passing them on would double them."""
    return sum(map(len, made_groups)) == len(set().union(*made_groups))


def _last_norms(tree: ModuleTree, space: Space) -> dict[str, str]:
    """The scale and the shift of the last batch norm of every block, if it has one, with the group of the block."""
    norm_tensors = {}
    for group, block in space.blocks.items():
        inside = tree.module(block.path).named_modules(prefix=block.path)
        norms = [path for path, module in inside if isinstance(module, _BatchNorm) and module.affine]
        norm_tensors.update({f"{path}.{name}": group for path in norms[-1:] for name in ("weight", "bias")})
    return norm_tensors
