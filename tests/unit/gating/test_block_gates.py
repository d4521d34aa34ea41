"""Gates of blocks: a live block gives (1 - g) x + g block(x), and the pull on g is autograd's own g dL/dg."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import meristem
from helpers import build, go, loss, run, whole
from meristem import Live, Space
from meristem.gating.block_gates import BlockGates
from meristem.gating.pulls import Pulls

NETS = ("deep_residual", "deep_plain", "deep_masked", "deep_tuples")
nets = pytest.mark.parametrize("name", NETS)


def soft(space: Space) -> dict[str, Tensor]:
    maker = torch.Generator().manual_seed(4)
    return {group: torch.rand(1, generator=maker, dtype=torch.float64) for group in space.blocks}


class ByHand(nn.Module):
    """The same by hand: a block and its gate, with gradients for both."""

    def __init__(self, block: nn.Module, gate: Tensor) -> None:
        super().__init__()
        self.block = block
        self.gate = nn.Parameter(gate.detach().clone())

    def forward(self, x: Tensor, *args: object, **named: object) -> Tensor | tuple[Tensor, ...]:
        out = self.block(x, *args, **named)
        if isinstance(out, tuple):
            return ((1 - self.gate) * x + self.gate * out[0], *out[1:])
        return (1 - self.gate) * x + self.gate * out


def by_hand(model: nn.Module, space: Space, gates: dict[str, Tensor]) -> tuple[nn.Module, dict[str, ByHand]]:
    model = copy.deepcopy(model)
    made = {}
    for group, block in space.blocks.items():
        parent, _, name = block.path.rpartition(".")
        if name in model.get_submodule(parent)._modules:
            made[group] = ByHand(model.get_submodule(block.path), gates[group])
            model.get_submodule(parent)._modules[name] = made[group]
    return model, made


def assert_pulls(pulls: dict[str, Tensor], made: dict[str, ByHand]) -> None:
    assert pulls.keys() == made.keys()
    for group, module in made.items():
        expected = (module.gate * module.gate.grad).detach().sum().float()
        torch.testing.assert_close(pulls[group].float(), expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("open_", [True, False], ids=["open", "soft"])
@nets
def test_output_gradients_and_pull(name: str, open_: bool, training: bool, space_of) -> None:
    space = space_of(name)
    model, inputs = build(name)
    model.train(training)
    gates = {group: torch.ones_like(gate) for group, gate in soft(space).items()} if open_ else soft(space)
    other, made = by_hand(model, space, gates)
    live = Live(model, space)
    passing = BlockGates(live, lambda group: None if open_ else gates[group])
    outputs, expected = run(model, inputs), run(other, inputs)
    for mine, theirs in zip(outputs, expected, strict=True):
        torch.testing.assert_close(mine, theirs)
    loss(outputs).backward()
    loss(expected).backward()
    assert_pulls(passing.take_pulls(), made)
    assert passing.take_pulls() == {}, "taken once"
    hand = {key.replace(".block.", "."): p.grad for key, p in other.named_parameters() if not key.endswith(".gate")}
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, hand[key], rtol=1e-6, atol=1e-9)


@nets
def test_pulls_of_several_passes_add_up(name: str, space_of) -> None:
    """As gradients do: two backward passes before a step, and one pass over two batches."""
    space = space_of(name)
    model, inputs = build(name)
    gates = soft(space)
    other, made = by_hand(model, space, gates)
    passing = BlockGates(Live(model, space), gates.get)
    for factor in (1.0, -0.5):
        batch = tuple(factor * x for x in inputs)
        loss(run(model, batch)).backward()
        loss(run(other, batch)).backward()
    assert_pulls(passing.take_pulls(), made)
    sum(loss(run(model, tuple(f * x for x in inputs))) for f in (1.0, -0.5)).backward()
    assert_pulls(passing.take_pulls(), made)


def test_without_gradients_nothing_is_left(space_of) -> None:
    space = space_of("deep_residual")
    model, inputs = build("deep_residual")
    passing = BlockGates(Live(model, space), soft(space).get)
    with torch.no_grad():
        run(model.eval(), inputs)
    with torch.inference_mode():
        run(model, inputs)
    run(model, inputs)  # nobody asks for its gradients
    assert passing.take_pulls() == {}


class Overwriting(nn.Module):
    """What comes after each block writes over what the block gave (or was given)."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what
        self.stem = nn.Linear(5, 6)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 6)) for _ in range(3))
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            y = block(x)
            if self.what == "output":
                y += 1.0
            elif self.what == "input":
                with torch.no_grad():
                    x.detach().mul_(0.5)
            x = y
        return self.head(x)


@pytest.mark.parametrize("open_", [True, False], ids=["open", "soft"])
@pytest.mark.parametrize("what", ["output", "input"])
def test_what_was_overwritten_gives_no_wrong_number(what: str, open_: bool) -> None:
    """Either the right pull or none at all."""
    torch.manual_seed(0)
    model, x = Overwriting(what).double(), torch.randn(4, 5, dtype=torch.float64)
    space = meristem.trace(model, x, depth=True)
    assert len(space.blocks) == 2
    gates = {group: torch.ones(1) if open_ else torch.full((1,), 0.4, dtype=torch.float64) for group in space.blocks}
    other, made = by_hand(model, space, {group: gate.double() for group, gate in gates.items()})
    passing = BlockGates(Live(model, space), lambda group: None if open_ else gates[group])
    if what == "input":  # autograd itself refuses where it still needs the values
        with pytest.raises(RuntimeError, match="inplace"):
            model(x).square().sum().backward()
        assert set(passing.take_pulls()) <= {list(space.blocks)[-1]}
        return
    model(x).square().sum().backward()
    other(x).square().sum().backward()
    pulls = passing.take_pulls()
    assert_pulls(pulls, {group: module for group, module in made.items() if group in pulls})
    assert open_ or pulls, "a mixed output can be overwritten without harm"


def hooks(model: nn.Module, live: Live) -> int:
    absent = [inner for path in live.tree.absent for inner in live.tree.module(path).modules()]
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in [*model.modules(), *absent])


def test_detach_takes_every_hook_away(space_of) -> None:
    space = space_of("deep_residual")
    model, inputs = build("deep_residual")
    live = Live(model, space)
    go(live, {next(iter(space.blocks)): []})
    before = run(model, inputs)[0]
    passing = BlockGates(live, soft(space).get)
    assert hooks(model, live) == len(space.blocks)
    passing.attach()
    assert hooks(model, live) == len(space.blocks), "attached once"
    assert not torch.equal(run(model, inputs)[0], before)
    passing.detach()
    assert hooks(model, live) == 0
    assert torch.equal(run(model, inputs)[0], before)
    passing.attach()
    assert not torch.equal(run(model, inputs)[0], before)


@nets
def test_absent_blocks_give_nothing_and_recalled_ones_again(name: str, space_of) -> None:
    space = space_of(name)
    model, inputs = build(name)
    gates = soft(space)
    live = Live(model, space)
    passing = BlockGates(live, gates.get)
    gone = next(iter(space.blocks))
    for target in ({gone: []}, whole(space), {group: [] for group in space.blocks}, {gone: [0]}):
        go(live, target)
        passing.detach()
        other, made = by_hand(model, space, gates)
        made = {group: module for group, module in made.items() if live.masks[group][0]}
        if name != "deep_masked":  # an identity in the place of an absent block is mixed with itself
            assert set(made) == {group for group, mask in live.masks.items() if group in gates and mask[0]}
        passing.attach()
        loss(run(model, inputs)).backward()
        loss(run(other, inputs)).backward()
        assert_pulls(passing.take_pulls(), made)


def test_in_the_order_of_the_space(space_of) -> None:
    """With the pulls of units in one vector: live units only, blocks at their own places, absent ones nowhere."""
    space = space_of("deep_residual")
    model, inputs = build("deep_residual")
    gates, live = soft(space), Live(model, space)
    passing = BlockGates(live, gates.get)
    pulls = Pulls(live, blocks=passing)
    gone = list(space.blocks)[1]
    for target in ({}, {gone: []}, whole(space)):
        go(live, target)
        passing.detach()
        other, made = by_hand(model, space, gates)
        passing.attach()
        model.zero_grad()
        loss(run(model, inputs)).backward()
        loss(run(other, inputs)).backward()
        vector, active = pulls(), live.active
        assert len(vector) == sum(int(mask.sum()) for mask in active.values())
        first = 0
        for group, mask in active.items():
            if group in space.blocks and mask[0]:
                expected = (made[group].gate * made[group].gate.grad).detach()
                torch.testing.assert_close(vector[first : first + 1], expected.float(), rtol=1e-4, atol=1e-7)
            first += int(mask.sum())
        inactive = [group for group, block in space.enclosing_block.items() if block == gone]
        assert inactive
        assert all(active[group].any() == (target != {gone: []}) for group in inactive)


def test_half_precision_and_a_scaled_loss() -> None:
    """The products of gradients and differences are summed where they cannot overflow."""
    torch.manual_seed(0)
    model, x = Overwriting("nothing"), torch.randn(512, 5)
    space = meristem.trace(model, x, depth=True)
    other, made = by_hand(model, space, {group: torch.ones(1) for group in space.blocks})
    scale = 2.0**11
    passing = BlockGates(Live(model.half(), space), lambda group: None)
    ((model(x.half()).float() - 3).square().sum() * scale).backward()
    (other(x) - 3).square().sum().backward()
    for group, pull in passing.take_pulls().items():
        assert pull.dtype == torch.float32
        expected = float(made[group].gate.grad)
        assert abs(expected * scale) > torch.finfo(torch.float16).max
        assert float(pull) / scale == pytest.approx(expected, rel=0.05)


def test_a_gate_at_one_is_no_gate(space_of) -> None:
    space = space_of("deep_residual")
    model, inputs = build("deep_residual")
    expected = run(model, inputs)[0]
    ones: Callable[[str], Tensor] = lambda group: torch.ones(1)  # noqa: E731
    passing = BlockGates(Live(model, space), ones)
    torch.testing.assert_close(run(model, inputs)[0], expected)
    loss(run(model, inputs)).backward()
    mixed = passing.take_pulls()
    passing._values = lambda group: None
    loss(run(model, inputs)).backward()
    for group, pull in passing.take_pulls().items():
        torch.testing.assert_close(pull, mixed[group].float(), rtol=1e-4, atol=1e-7)
    assert len(mixed) == len(space.blocks)


# --- as the gradients are when the optimizer steps ---


def listening(space: Space) -> tuple[nn.Module, torch.optim.Optimizer, tuple[Tensor, ...], Pulls, list[Tensor]]:
    """A model whose pulls, of units and of blocks, are read when its optimizer steps."""
    model, inputs = build("deep_residual", torch.float32)
    live = Live(model, space, torch.optim.SGD(model.parameters(), 1e-3))
    pulls, read = Pulls(live, blocks=BlockGates(live, lambda group: None)), list[Tensor]()
    assert live.optimizer is not None
    live.optimizer.register_step_pre_hook(lambda *_: read.append(pulls()))
    return model, live.optimizer, inputs, pulls, read


def test_a_gradient_scaler_does_not_show(space_of) -> None:
    """The scale is a power of two, so that not even the last bit differs; a step that it skips leaves nothing."""
    space, found = space_of("deep_residual"), {}
    for scaled in (False, True):
        model, optimizer, inputs, _, read = listening(space)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=scaled)
        for factor in (1.0, 0.5, float("inf"), 0.25):
            if factor == float("inf") and not scaled:
                continue
            optimizer.zero_grad()
            scaler.scale(loss(run(model, inputs)) * factor).backward()
            scaler.step(optimizer)
            scaler.update()
        found[scaled] = read
    assert len(found[True]) == len(found[False]) == 3
    for mine, expected in zip(found[True], found[False], strict=True):
        assert expected.count_nonzero() > len(space.blocks)
        assert torch.equal(mine, expected)


def test_clipping_scales_units_and_blocks_alike(space_of) -> None:
    space = space_of("deep_residual")
    free, clipped = (listening(space) for _ in range(2))
    for model, optimizer, inputs, _, _ in (free, clipped):
        for _ in range(2):  # accumulated
            loss(run(model, inputs)).backward()
        if model is clipped[0]:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        optimizer.step()
    ratio = 1e-3 / float(norm)
    assert ratio < 0.5
    torch.testing.assert_close(clipped[-1][0], free[-1][0] * ratio, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_what_is_cleared_is_forgotten(set_to_none: bool, space_of) -> None:
    """A pass whose gradients are thrown away says nothing about the next step, whichever way they are cleared."""
    space = space_of("deep_residual")
    once, twice = (listening(space) for _ in range(2))
    for model, optimizer, inputs, _, _ in (once, twice):
        model.eval()  # statistics must not tell how often it was run
        for factor in (1.0,) if model is once[0] else (float("nan"), 3.0, 1.0):
            optimizer.zero_grad(set_to_none=set_to_none)
            sum(loss(run(model, inputs)) * factor for _ in range(2)).backward()
        optimizer.step()
    assert torch.equal(once[-1][0], twice[-1][0])


def test_a_listened_model_can_be_copied_and_kept(space_of) -> None:
    import pickle

    model, optimizer, inputs, _, read = listening(space_of("deep_residual"))
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        loss(run(copied, inputs)).backward()
    loss(run(model, inputs)).backward()
    optimizer.step()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert read[0].isfinite().all()
