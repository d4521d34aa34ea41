"""Which blocks are found, which are not, and what is said about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import pytest
import torch
from torch import Tensor, nn

import meristem
from deep import DEEP, DROPPED
from helpers import go, run
from meristem import Live, Space
from meristem.errors import TraceError
from meristem.space.space import DEPTH
from meristem_bench.models.depth_starts import basic3_resnet, plain3_net
from nets.common import Residual, mlp, seq
from nets.tokens import MatmulAttention
from nets.tokens import block as sequence_block

X = torch.ones(2, 6)


def residual(c: int = 6, hidden: int = 8) -> Residual:
    return Residual(mlp(c, hidden, c))


class Chain(nn.Module):
    """A stem, blocks, a head; ``run`` says how the blocks are called."""

    def __init__(self, blocks: nn.Module, call: Callable[[nn.Module, Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.stem, self.blocks, self.head = nn.Linear(6, 6), blocks, nn.Linear(6, 2)
        self.call = call or (lambda blocks, x: blocks(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.call(self.blocks, self.stem(x)))


def blocks_of(space: Space) -> list[str]:
    return [block.path for block in space.blocks.values()]


def note(space: Space, path: str) -> str:
    return next((line for line in space.notes if path in line.split(" can never")[0].split(", ")), "")


# --- what is found ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DEEP)
def test_which_have_no_shortcut(name: str) -> None:
    space = meristem.trace(*DEEP[name].build(), depth=True)
    assert {block.plain for block in space.blocks.values()} == {name == "deep_plain"}


def test_a_sum_in_either_order_is_a_shortcut() -> None:
    class Turned(Residual):
        def forward(self, x: Tensor) -> Tensor:
            return self.body(x) + x

    for make in (Residual, Turned):
        space = meristem.trace(Chain(nn.Sequential(*(make(mlp(6, 8, 6)) for _ in range(2)))), X, depth=True)
        assert [block.plain for block in space.blocks.values()] == [False] * len(space.blocks)
    space = meristem.trace(Chain(nn.Sequential(mlp(6, 8, 6), mlp(6, 8, 6))), X, depth=True)
    assert [block.plain for block in space.blocks.values()] == [True] * len(space.blocks)


@pytest.mark.parametrize("name", DEEP)
def test_the_deep_nets(name: str, space_of) -> None:
    """All blocks but the first of each stage, each a group of one unit that owns all its tensors and cost."""
    space = space_of(name)
    assert space.stages
    for stage in space.stages:
        assert stage.fixed == 1
        assert [block.path for block in stage.blocks] == [f"{stage.name}.{n + 1}" for n in range(len(stage.blocks))]
        assert {block.way for block in stage.blocks} == {"dropped" if name in DROPPED else "replaced"}
        assert note(space, f"{stage.name}.0")
    for group, block in space.blocks.items():
        assert group == f"{block.path}:block"
        described = space.groups[group]
        assert (described.units, described.kind, described.min_units) == (1, DEPTH, 0)
        for tensor, known in space.tensors.items():
            inside = tensor.startswith(f"{block.path}.") and bool(known.shape)
            owners = {part.group for axis in space.axes(tensor) for part in axis.parts}
            assert (group in owners) == inside, tensor
        for term in space.terms:
            owned = group in {part.group for axis in term.axes for part in axis.parts}
            assert owned == f"{term.module}.".startswith(f"{block.path}.")
    for group, owner in space.enclosing_block.items():
        makers, along, readers = space.coupled(group)
        assert all(path.startswith(space.blocks[owner].path) for path in (*makers, *along, *readers))
    assert space.costs is not None
    assert space.costs[0].params < space.costs[1].params
    assert next(iter(space.blocks)) in str(space)


def test_without_depth_nothing_is_different() -> None:
    for make in (lambda: basic3_resnet((2, 2, 2), width=4), lambda: plain3_net((2, 2, 1), width=4)):
        torch.manual_seed(0)
        space = meristem.trace(make(), torch.zeros(1, 3, 8, 8))
        assert not space.stages
        assert not space.blocks
        assert not space.enclosing_block
        again = meristem.trace(make(), torch.zeros(1, 3, 8, 8), depth=False)
        assert all(getattr(again, f.name) == getattr(space, f.name) for f in fields(Space) if f.compare)


def test_the_groups_of_a_residual_net_are_the_same_with_and_without_depth() -> None:
    model = basic3_resnet((2, 2, 2), width=4)
    less, more = (meristem.trace(model, torch.zeros(1, 3, 8, 8), depth=depth) for depth in (False, True))
    assert {name: g for name, g in more.groups.items() if g.kind != DEPTH} == dict(less.groups)
    assert more.costs is not None
    assert less.costs is not None
    assert more.costs[1] == less.costs[1]
    assert more.costs[0].params < less.costs[0].params


def test_streams_of_plain_nets_are_tied() -> None:
    """Without a shortcut a block's input and output are different units; if it may be absent they are the same."""
    model = plain3_net((2, 1, 1), width=4)
    free = meristem.trace(model, torch.zeros(1, 3, 8, 8))
    tied = meristem.trace(model, torch.zeros(1, 3, 8, 8), depth=True)
    assert "stages.0.1.conv2" in free.groups
    assert "stages.0.1.conv2" not in tied.groups
    stream = next(name for name in tied.groups if "stages.0.1.conv2" in tied.coupled(name)[0])
    assert "stages.0.0.conv2" in tied.coupled(stream)[0]
    excluded = meristem.trace(model, torch.zeros(1, 3, 8, 8), depth="!stages.0.*")
    assert "stages.0.1.conv2" in excluded.groups, "what is never absent is not tied"


# --- what is not --------------------------------------------------------------------------------------------------


def test_blocks_that_change_the_shape() -> None:
    body = nn.Sequential(residual(), Residual(mlp(6, 8, 9), nn.Linear(6, 9)), residual(9), residual(9))
    model = seq(stem=nn.Linear(6, 6), blocks=body, head=nn.Linear(9, 2))
    space = meristem.trace(model, X, depth=True)
    assert blocks_of(space) == ["blocks.2", "blocks.3"]
    assert space.stages[0].fixed == 2
    assert "it is the first of its stage" in note(space, "blocks.0")
    assert "does not map one tensor to one of the same shape" in note(space, "blocks.1")


def test_a_stage_of_one_block_stays() -> None:
    space = meristem.trace(Chain(nn.Sequential(residual())), X, depth=True)
    assert not space.stages


def test_flat_sequences_of_layers_have_no_blocks() -> None:
    layers: list[nn.Module] = []
    for _ in range(3):
        layers += [nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU()]
    model = seq(features=nn.Sequential(*layers), pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(), fc=nn.Linear(3, 2))
    assert not meristem.trace(model, torch.zeros(2, 3, 8, 8), depth=True).stages


def test_a_single_layer_can_be_named() -> None:
    body = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
    space = meristem.trace(Chain(body), X, depth=["blocks.2", "blocks.4"])
    assert blocks_of(space) == ["blocks.2", "blocks.4"]
    assert blocks_of(meristem.trace(Chain(body), X, depth="blocks.2")) == ["blocks.2"]


def test_blocks_without_anything_to_learn_are_none() -> None:
    body = nn.Sequential(residual(), nn.Sequential(nn.ReLU(), nn.Dropout(0.0)), residual())
    assert blocks_of(meristem.trace(Chain(body), X, depth=True)) == ["blocks.2"]


def test_shared_weights() -> None:
    shared = [residual() for _ in range(4)]
    shared[2].body.up.weight = shared[1].body.up.weight
    space = meristem.trace(Chain(nn.Sequential(*shared)), X, depth=True)
    assert blocks_of(space) == ["blocks.3"]
    assert "shares weights" in note(space, "blocks.1")
    assert "shares weights" in note(space, "blocks.2")


def test_weights_shared_inside_a_block_are_its_own_affair() -> None:
    made = [residual(6, 6) for _ in range(3)]
    for each in made:
        each.body.down.weight = each.body.up.weight
    space = meristem.trace(Chain(nn.Sequential(*made)), X, depth=True)
    assert blocks_of(space) == ["blocks.1", "blocks.2"]
    live = Live(Chain(nn.Sequential(*made)), space)
    go(live, {"blocks.1:block": []})
    go(live, {"blocks.1:block": [0]})
    assert made[1].body.down.weight is made[1].body.up.weight


def test_the_same_module_twice() -> None:
    one = residual()
    twice = Chain(nn.ModuleList([residual(), one, residual()]), lambda b, x: b[2](b[1](b[1](b[0](x)))))
    space = meristem.trace(twice, X, depth=True)
    assert blocks_of(space) == ["blocks.2"]
    assert "called more than once" in note(space, "blocks.1")
    listed = meristem.trace(Chain(nn.Sequential(residual(), one, one, residual())), X, depth=True)
    assert blocks_of(listed) == ["blocks.3"]


def test_blocks_that_are_never_called() -> None:
    model = Chain(nn.ModuleList(residual() for _ in range(4)), lambda b, x: b[2](b[1](b[0](x))))
    space = meristem.trace(model, X, depth=True)
    assert blocks_of(space) == ["blocks.1", "blocks.2"]
    assert "never called" in note(space, "blocks.3")


class Scaled(nn.Module):
    """A block with a parameter that has no dimension of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = mlp(6, 8, 6), nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scale * self.inner(x)


def test_a_parameter_without_dimensions() -> None:
    space = meristem.trace(Chain(nn.Sequential(residual(), Scaled(), residual())), X, depth=True)
    assert blocks_of(space) == ["blocks.2"]
    assert "without dimensions" in note(space, "blocks.1")


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp(6, 8, 6)

    def forward(self, x: Tensor, keep: Tensor | float = 1.0) -> Tensor:
        return x + keep * self.inner(x)


def several(blocks: nn.Module, x: Tensor) -> Tensor:
    for block in blocks:
        x = block(x, torch.full((1,), 0.5, dtype=x.dtype))
    return x


def test_several_arguments() -> None:
    """Dropped where the list can be shortened. Elsewhere an identity would have to take the arguments."""
    space = meristem.trace(Chain(nn.ModuleList(TwoInputs() for _ in range(3)), several), X, depth=True)
    assert {block.path: block.way for block in space.blocks.values()} == {"blocks.1": "dropped", "blocks.2": "dropped"}
    named = Chain(
        seq(one=TwoInputs(), two=TwoInputs(), three=TwoInputs()),
        lambda b, x: b.three(b.two(b.one(x, torch.ones(1)), torch.ones(1))),
    )
    space = meristem.trace(named, X, depth=True)
    assert blocks_of(space) == ["blocks.three"]
    assert "more than one tensor" in note(space, "blocks.two")


def by_index(blocks: nn.Module, x: Tensor) -> Tensor:
    for index in range(len(blocks)):  # type: ignore[arg-type]
        x = blocks[index](x)  # type: ignore[index]
    return x


def by_index_with_more(blocks: nn.Module, x: Tensor) -> Tensor:
    for index in range(len(blocks)):  # type: ignore[arg-type]
        x = blocks[index](x, torch.ones(1, dtype=x.dtype))  # type: ignore[index]
    return x


def every_plan_runs(model: nn.Module, space: Space) -> None:
    """Each subset of the blocks can be absent."""
    names = list(space.blocks)
    live = Live(model, space)
    for number in range(2 ** len(names)):
        go(live, {name: [0] * (number >> at & 1) for at, name in enumerate(names)})
        run(model, (X,))


def test_a_loop_over_indexes() -> None:
    """With an identity in its place, indexes stay what they are."""
    model = Chain(nn.ModuleList(residual() for _ in range(4)), by_index)
    space = meristem.trace(model, X, depth=True)
    assert blocks_of(space) == ["blocks.1", "blocks.2", "blocks.3"]
    every_plan_runs(model, space)


def test_a_loop_over_indexes_of_a_list_that_would_be_shortened() -> None:
    """All blocks absent would run, one of them would not: what may be absent may be so in any combination."""
    model = Chain(nn.ModuleList(TwoInputs() for _ in range(5)), by_index_with_more)
    space = meristem.trace(model, X, depth=True)
    assert "does not run without it" in note(space, "blocks.1")
    assert "does not run without it" in note(space, "blocks.2")
    assert "does not run without it" in note(space, "blocks.3")
    assert blocks_of(space) == ["blocks.4"]
    every_plan_runs(model, space)


class Beside(nn.Module):
    """Blocks are given something from another list; ``inside`` tells whether they or the model use it."""

    def __init__(self, inside: bool) -> None:
        super().__init__()
        self.stem, self.head, self.inside = nn.Linear(6, 6), nn.Linear(6, 2), inside
        self.blocks = nn.ModuleList(TwoInputs() for _ in range(4))
        self.places = nn.ParameterList(nn.Parameter(torch.randn(6)) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for index, block in enumerate(self.blocks):
            place = self.places[index]
            x = block(x, place) if self.inside else block(x + place, torch.ones(1, dtype=x.dtype))
        return self.head(x)


@pytest.mark.parametrize("inside", [True, False])
def test_a_list_that_is_counted_beside_the_blocks(inside: bool) -> None:
    """In a shortened list of blocks, others would be given what is not theirs, though all shapes are right."""
    space = meristem.trace(Beside(inside), X, depth=True)
    assert not set(blocks_of(space)) & {"blocks.1", "blocks.2"}
    assert "as it does with it" in note(space, "blocks.1")


@pytest.mark.parametrize("depth", [False, (), []])
def test_no_patterns_no_blocks(depth: bool | tuple[str, ...] | list[str]) -> None:
    assert not meristem.trace(Chain(nn.Sequential(residual(), residual())), X, depth=depth).blocks


class Overwriting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.body = nn.ReLU(inplace=True), mlp(6, 8, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(self.first(x))  # type: ignore[no-any-return]


def test_a_block_that_overwrites_its_input() -> None:
    """At a gate of 0 it would pass on what it has overwritten, and without it the model has the input itself."""
    space = meristem.trace(Chain(nn.Sequential(residual(), Overwriting(), residual())), X, depth=True)
    assert blocks_of(space) == ["blocks.2"]
    assert "overwrites" in note(space, "blocks.1")


class Peeking(Chain):
    """Looks into one of its blocks."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.blocks[2].body.up.weight.mean()


def test_a_model_that_does_not_run_without_a_block() -> None:
    space = meristem.trace(Peeking(nn.Sequential(*(residual() for _ in range(4)))), X, depth=True)
    assert blocks_of(space) == ["blocks.1", "blocks.3"]
    assert "the model does not run without it" in note(space, "blocks.2")
    assert space.stages[0].fixed == 2


def test_nested_sequences() -> None:
    """A plain sequence of blocks is a stage, not a block; one of layers is a block; blocks are not searched."""
    stage = nn.Sequential(nn.Sequential(residual(), residual()), nn.Sequential(residual(), residual(), residual()))
    space = meristem.trace(Chain(stage), X, depth=True)
    assert {s.name: [b.path for b in s.blocks] for s in space.stages} == {
        "blocks.0": ["blocks.0.1"],
        "blocks.1": ["blocks.1.1", "blocks.1.2"],
    }
    flat = meristem.trace(Chain(nn.Sequential(mlp(6, 8, 6), mlp(6, 8, 6))), X, depth=True)
    assert blocks_of(flat) == ["blocks.1"]
    tokens = nn.Sequential(*(sequence_block(6, MatmulAttention(6, 2, 3), mlp(6, 8, 6)) for _ in range(2)))
    halves = meristem.trace(Chain(tokens), torch.ones(2, 3, 6), depth=True)
    assert blocks_of(halves) == ["blocks.0.ffn", "blocks.1.ffn"]
    inside = nn.Sequential(*(Residual(nn.Sequential(residual(), residual())) for _ in range(2)))
    assert blocks_of(meristem.trace(Chain(inside), X, depth=True)) == ["blocks.1"]


def test_a_sequence_in_the_model_itself() -> None:
    """The model can be the stage."""
    model = nn.Sequential(nn.Linear(6, 6), residual(), residual(), residual(), nn.Linear(6, 2))
    space = meristem.trace(model, X, depth=True)
    assert blocks_of(space) == ["2", "3"]
    live = Live(model, space)
    go(live, {"2:block": []})
    assert isinstance(model[2], nn.Identity)
    assert model(X).shape == (2, 2)


# --- patterns -----------------------------------------------------------------------------------------------------


def test_patterns_name_and_exclude() -> None:
    stages = nn.Sequential(*(nn.Sequential(*(residual() for _ in range(3))) for _ in range(2)))
    model = Chain(stages)

    def found(depth: str | list[str] | bool) -> list[str]:
        return blocks_of(meristem.trace(model, X, depth=depth))

    every = ["blocks.0.1", "blocks.0.2", "blocks.1.1", "blocks.1.2"]
    assert found(True) == every
    assert found("!blocks.0.*") == every[2:]
    assert found(["!blocks.0.1", "!blocks.1.2"]) == every[1:3]
    assert found("blocks.1.*") == every[2:]
    assert found(["blocks.*.*", "!*.2"]) == ["blocks.0.1", "blocks.1.1"]
    assert found("blocks.0.2") == ["blocks.0.2"]
    excluded = meristem.trace(model, X, depth="!blocks.0.1")
    assert "you excluded it" in note(excluded, "blocks.0.1")
    assert [stage.fixed for stage in excluded.stages] == [2, 1]


def test_a_pattern_that_matches_nothing() -> None:
    for pattern in ("stage.0.1", "!stages.7.*"):
        with pytest.raises(TraceError, match="matches no module") as error:
            meristem.trace(basic3_resnet((2, 1, 1), width=4), torch.zeros(1, 3, 8, 8), depth=pattern)
        assert pattern in str(error.value)
        assert "stages" in str(error.value)


def test_a_named_block_that_cannot_be_absent_is_said() -> None:
    """Nothing that was asked for is dropped in silence."""
    model = basic3_resnet((2, 2, 1), width=4)
    space = meristem.trace(model, torch.zeros(1, 3, 8, 8), depth="stages.1.0")
    assert not space.blocks
    assert "same shape" in note(space, "stages.1.0")


# --- the model ----------------------------------------------------------------------------------------------------


def test_the_model_is_left_alone() -> None:
    model = basic3_resnet((2, 2, 2), width=4).eval()
    before = {name: (id(p), p.detach().clone()) for name, p in model.state_dict(keep_vars=True).items()}
    modules = {path: id(module) for path, module in model.named_modules()}
    random = torch.get_rng_state()
    meristem.trace(model, torch.zeros(1, 3, 8, 8), depth=True)
    assert {path: id(module) for path, module in model.named_modules()} == modules
    assert not any(module._forward_hooks or module.training for module in model.modules())
    for name, tensor in model.state_dict(keep_vars=True).items():
        assert id(tensor) == before[name][0]
        assert torch.equal(tensor, before[name][1])
    assert torch.equal(torch.get_rng_state(), random)
