"""What a fresh block without a shortcut starts with: it passes on what it is given, as far as its layers can."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import meristem
from helpers import go
from meristem import Live
from meristem.surgery.fresh import AsBuilt, LayerPart, ZeroOutgoing
from meristem_bench.models.depth_starts import basic3_resnet, plain3_net


def grown(model: nn.Module, x: torch.Tensor, inner: int | None = None) -> tuple[nn.Module, nn.Module]:
    """The model started without its last block, which is then grown; the block, and as it was built."""
    space = meristem.trace(model, x, depth=True)
    block = space.stages[-1].blocks[-1]
    built = copy.deepcopy(model.get_submodule(block.path))
    widths = {group.name: range(group.units) for group in space.groups.values()}
    if inner is not None:
        name = next(name for name, owner in space.enclosing_block.items() if owner == block.group)
        widths[name] = range(inner)
    live = Live(model, space, start={**widths, block.group: []}, fresh=ZeroOutgoing())
    go(live, {block.group: [0]})
    return model.get_submodule(block.path), built


def layers(*each: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 6, 1), nn.ReLU(), nn.Sequential(*each), nn.Flatten(), nn.Linear(6 * 16, 2))


def chain() -> nn.Module:
    return nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1), nn.ReLU())


def test_layers_that_can_pass_on_all_do() -> None:
    """Two convolutions and ReLUs, without norms: what is not negative comes out as it went in, bit for bit."""
    block, built = grown(layers(chain(), chain()), torch.randn(2, 3, 4, 4))
    x = torch.rand(2, 6, 4, 4)
    torch.testing.assert_close(block(x), x, rtol=0, atol=0)
    assert not torch.allclose(built(x), x)


def test_linear_layers_too() -> None:
    def chain() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 6), nn.ReLU())

    model = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Sequential(chain(), chain()), nn.Linear(6, 2))
    block, _ = grown(model, torch.randn(2, 3))
    x = torch.rand(2, 6)
    assert torch.equal(block(x), x)


def test_behind_a_norm_every_channel_is_a_straight_line_of_what_went_in() -> None:
    block, built = grown(plain3_net((1, 1, 2), width=4), torch.randn(2, 3, 32, 32))
    x = torch.randn(8, 16, 8, 8).relu()

    def likeness(made: nn.Module) -> float:
        """The least correlation of a channel with the one that went in."""
        pairs = zip(x.transpose(0, 1), made.train()(x).detach().transpose(0, 1), strict=True)
        return min(float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1]) for a, b in pairs)

    assert likeness(block) > 0.999
    assert likeness(built) < 0.5


def test_outputs_without_an_input_are_as_built() -> None:
    block, _ = grown(layers(chain(), chain()), torch.randn(2, 3, 4, 4), inner=4)
    first, last = block[0].weight, block[2].weight
    assert first.shape[:2] == (4, 6)
    assert last.shape[:2] == (6, 4)
    x = torch.rand(2, 6, 4, 4)
    assert torch.equal(block(x)[:, :4], x[:, :4])
    assert last[4:].std() > 0
    assert torch.equal(last[:4].sum((2, 3)), torch.eye(4))


def test_a_block_with_a_shortcut_is_as_built() -> None:
    x = torch.randn(2, 3, 32, 32)
    torch.manual_seed(0)
    weights = {}
    for rule in (ZeroOutgoing(), AsBuilt()):
        torch.manual_seed(1)
        model = basic3_resnet((1, 1, 2), width=4)
        space = meristem.trace(model, x, depth=True)
        block = space.stages[-1].blocks[-1]
        everything = {group.name: range(group.units) for group in space.groups.values()}
        live = Live(model, space, start={**everything, block.group: []}, fresh=rule)
        go(live, {block.group: [0]})
        weights[type(rule)] = model.get_submodule(block.path).state_dict()
    for name, value in weights[AsBuilt].items():
        assert torch.equal(value, weights[ZeroOutgoing][name]), name


def test_a_restored_block_has_what_it_had() -> None:
    model = layers(chain(), chain())
    space = meristem.trace(model, torch.randn(2, 3, 4, 4), depth=True)
    block = space.stages[-1].blocks[-1]
    live = Live(model, space, start={block.group: []}, fresh=ZeroOutgoing())
    go(live, {block.group: [0]})
    with torch.no_grad():
        model.get_submodule(block.path)[0].weight.mul_(3.0)
    go(live, {block.group: []})
    go(live, {block.group: [0]})
    assert float(model.get_submodule(block.path)[0].weight.detach().max()) == 3.0


@pytest.mark.parametrize("groups", [2, 6])
def test_grouped_convolutions_are_as_built(groups: int) -> None:
    def grouped() -> nn.Module:
        return nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, groups=groups), nn.ReLU(), nn.Conv2d(6, 6, 1), nn.ReLU())

    block, built = grown(layers(grouped(), grouped()), torch.randn(2, 3, 4, 4))
    assert sorted(block[0].weight.flatten().tolist()) == pytest.approx(sorted(built[0].weight.flatten().tolist()))
    assert torch.equal(block[2].weight.flatten(1), torch.eye(6))


def test_the_middle_of_any_kernel() -> None:
    for shape in ((2, 2), (2, 3, 5), (3, 2, 3, 3), (2, 2, 1, 3, 5)):
        weight = ZeroOutgoing().plain(LayerPart.WEIGHT, torch.randn(shape))
        middle = weight[(slice(2), slice(2), *(size // 2 for size in shape[2:]))]
        assert torch.equal(middle, torch.eye(2))
        assert float(weight[:2].sum()) == 2


def test_layers_that_are_added_inside_are_as_built() -> None:
    """Each would pass on what it is given, so the sum would be twice that."""

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = self.first(x).relu()
            return (made + self.second(made)).relu()  # type: ignore[no-any-return]

    block, built = grown(layers(Inner(), Inner()), torch.randn(2, 3, 4, 4))
    assert not torch.equal(block.first.weight.sum((2, 3)), torch.eye(6))
    assert torch.equal(block.first.weight.flatten().sort()[0], built.first.weight.flatten().sort()[0])


def test_frozen_layers_stay_as_they_are() -> None:
    model = layers(chain(), chain())
    frozen = model[2][1][0].weight.requires_grad_(False)  # type: ignore[index]
    before = frozen.clone()
    block, _ = grown(model, torch.randn(2, 3, 4, 4))
    assert torch.equal(block[0].weight, before)
    assert torch.equal(block[2].weight.sum((2, 3)), torch.eye(6))
