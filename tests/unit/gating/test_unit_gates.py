"""Gates in the forward pass: in eager mode, autocast, compile, checkpointing and accumulation; and that they leave."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn, optim
from torch.utils.checkpoint import checkpoint

import meristem
from helpers import NOISE, RandomGates, assert_all_near, assert_near, build, go, half, loss, run, train
from meristem import Gates, Live
from zoo import RECURRENT, ZOO


def gated(name: str, space: meristem.Space, dtype: torch.dtype = torch.float64):
    model, inputs = build(name, dtype)
    live = Live(model, space)
    go(live, half(space))
    scores = RandomGates(space, dtype=dtype)
    return live, scores, scores.on(live), inputs


def is_plain(model: nn.Module) -> bool:
    return all(isinstance(p, nn.Parameter) for m in model.modules() for p in m._parameters.values() if p is not None)


def test_gates_of_one_change_nothing(space_of) -> None:
    model, inputs = build("resnet")
    live = Live(model, space_of("resnet"))
    expected = run(model.eval(), inputs)
    Gates(live, lambda group: torch.ones(live.widths[group], dtype=torch.float64))
    assert all(torch.equal(a, b) for a, b in zip(run(model, inputs), expected, strict=True))


def test_none_means_not_gated(space_of) -> None:
    model, inputs = build("resnet")
    live = Live(model, space_of("resnet"))
    expected = run(model.eval(), inputs)
    Gates(live, lambda group: None)
    assert all(torch.equal(a, b) for a, b in zip(run(model, inputs), expected, strict=True))


@pytest.mark.parametrize(
    "name", ["resnet", "densenet", "attention_value_dim", "encoder", "lstm_lm", "depthwise_transposed"]
)
def test_gradients_against_finite_differences(name: str, space_of) -> None:
    live, scores, _, inputs = gated(name, space_of(name))
    live.model.eval()
    loss(run(live.model, inputs)).backward()
    for group, gate in scores.full.items():
        mask = torch.from_numpy(live.masks[group])
        axes = (live.space.axes(slot.tensor)[slot.dim] for slot in live.space.slots)
        is_read = any(part.group == group for axis in axes for part in axis.parts)
        assert (gate.grad is not None) == is_read, "what queries and keys share is read by no weight, so it has no gate"
        if gate.grad is None:
            continue
        assert not gate.grad[~mask].any(), "the task's gradient reaches live units only"
        unit = int(mask.nonzero()[0])
        with torch.no_grad():
            values = []
            for sign in (1, -1):
                gate[unit] += sign * 1e-6
                values.append(float(loss(run(live.model, inputs))))
                gate[unit] -= sign * 1e-6
        assert_near(gate.grad[unit], torch.tensor((values[0] - values[1]) / 2e-6), 1e-4, group, floor=NOISE)


def test_parameters_are_put_back(space_of) -> None:
    live, _, gates, inputs = gated("encoder", space_of("encoder"))
    before = {name: id(parameter) for name, parameter in live.model.named_parameters()}
    state = list(live.model.state_dict())
    run(live.model, inputs)
    assert {name: id(parameter) for name, parameter in live.model.named_parameters()} == before
    gates.detach()
    assert list(live.model.state_dict()) == state
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in live.model.modules())


def test_parameters_are_put_back_after_an_error_in_the_model(space_of) -> None:
    live, _, _, inputs = gated("lstm_lm", space_of("lstm_lm"))
    with pytest.raises(RuntimeError, match="size"):
        live.model.rnn(torch.zeros(2, 3, 99, dtype=torch.float64))
    assert is_plain(live.model)
    run(live.model, inputs)


def test_parameters_are_put_back_after_an_error_in_the_gates(space_of) -> None:
    model, inputs = build("lstm_lm")
    live = Live(model, space_of("lstm_lm"))
    asked = []

    def values(group: str) -> Tensor:
        asked.append(group)
        if len(asked) == 3:
            raise ValueError("no gate for you")
        return torch.ones(live.widths[group], dtype=torch.float64)

    gates = Gates(live, values)
    with pytest.raises(ValueError, match="no gate"):
        run(model, inputs)
    gates.detach()
    assert is_plain(model)


def test_paused_and_attached_again(space_of) -> None:
    live, _, gates, inputs = gated("plain", space_of("plain"))
    live.model.eval()
    scaled = run(live.model, inputs)
    with gates.paused():
        assert not torch.equal(run(live.model, inputs)[0], scaled[0])
    assert torch.equal(run(live.model, inputs)[0], scaled[0])
    gates.attach()  # a second time changes nothing
    assert torch.equal(run(live.model, inputs)[0], scaled[0])
    gates.detach()
    with gates.paused():
        pass
    assert not any(m._forward_hooks for m in live.model.modules())


def test_gates_follow_a_plan(space_of) -> None:
    """The places of units among the live ones change with every plan; the hooks stay."""
    live, scores, gates, inputs = gated("densenet", space_of("densenet"))
    live.model.eval()
    run(live.model, inputs)
    go(live, {group: [g.units - 1, 0] for group, g in live.space.groups.items()})
    expected = run(live.model, inputs)
    gates.detach()
    scores.on(live)
    assert_all_near(run(live.model, inputs), expected, 0.0)


def test_training_weights_and_gates_together(space_of) -> None:
    live, scores, _, inputs = gated("resnet", space_of("resnet"))
    weights = optim.SGD(live.model.parameters(), lr=0.01, momentum=0.9)
    scores_optimizer = optim.SGD(scores.full.values(), lr=0.1)
    losses = []
    for _ in range(5):
        weights.zero_grad()
        scores_optimizer.zero_grad()
        value = loss(run(live.model, inputs))
        value.backward()
        weights.step()
        scores_optimizer.step()
        losses.append(float(value.detach()))
    assert losses[-1] < losses[0]


def test_gradient_accumulation(space_of) -> None:
    """Two backward passes of half the batch add up to one of the whole, for weights and gates alike."""
    live, scores, _, (x,) = gated("bare_parameters", space_of("bare_parameters"))
    found = []
    for batches in ([x], [x[:1], x[1:]]):
        live.model.zero_grad()
        scores.take_gradients()
        for batch in batches:
            (run(live.model, (batch,))[0].square().sum()).backward()
        found.append([p.grad.clone() for p in live.model.parameters()] + list(scores.take_gradients().values()))
    assert_all_near(found[1], found[0], 1e-12, "gradient")


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(reentrant: bool, space_of) -> None:
    """The forward runs again during backward; the gates must be in place then too."""
    live, scores, _, (x,) = gated("resnet", space_of("resnet"))
    x = x.requires_grad_()
    found = []
    for again in (False, True):
        live.model.eval().zero_grad()
        body = checkpoint(live.model.body, x, use_reentrant=reentrant) if again else live.model.body(x)
        for part in (live.model.pool, live.model.flat, live.model.head):
            body = part(body)
        body.square().sum().backward()
        found.append([p.grad.clone() for p in live.model.parameters()] + list(scores.take_gradients().values()))
        assert is_plain(live.model)
    assert_all_near(found[1], found[0], 1e-12, "gradient")


# oneDNN has no bfloat16 recurrent cells here; torch itself refuses two precisions in these operations.
NOT_UNDER_AUTOCAST = {net.name for net in RECURRENT} | {"filled_in", "bilinear"}


@pytest.mark.parametrize("name", [name for name in ZOO if name not in NOT_UNDER_AUTOCAST])
def test_autocast(name: str, space_of) -> None:
    """bfloat16 inside, float32 parameters and gradients outside."""
    live, scores, _, inputs = gated(name, space_of(name), torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(out.float() for out in run(live.model, inputs))
    value.backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in live.model.parameters())
    read = {part.group for slot in live.space.slots for part in live.space.axes(slot.tensor)[slot.dim].parts}
    assert all(scores.full[group].grad.isfinite().all() for group in read)
    optimizer = optim.AdamW(live.model.parameters())
    train(live.model, optimizer, inputs, 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compile(space_of) -> None:
    """One graph, no break; the same numbers; after a plan it is compiled again and still right."""
    live, scores, gates, inputs = gated("mlp", space_of("mlp"), torch.float32)
    live.model.eval()
    compiled = torch.compile(live.model, fullgraph=True, backend="aot_eager")
    for target in (half(live.space), {"a": [0, 1, 7], "b": [5]}):
        go(live, target)
        gates.attach()  # looks up what the compiler cannot
        found = []
        for model in (compiled, live.model):
            live.model.zero_grad()
            out = model(*inputs)
            out.square().sum().backward()
            grads = [p.grad.clone() for p in live.model.parameters()]
            found.append([out, *grads, *scores.take_gradients().values()])
        assert_all_near(found[0], found[1], 1e-5, "output or gradient")
    assert is_plain(live.model)
