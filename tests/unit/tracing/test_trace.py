"""trace: what it accepts, what it refuses and with which words, what it leaves alone."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import meristem
from helpers import assert_untouched, build, go, half, run, state_of
from meristem import Live, Space
from meristem.errors import TraceError
from meristem.rules import LayerRule, OpRule
from meristem.space.space import Role
from meristem.testing import masked_reference
from zoo import ZOO, ZooNet

nets = pytest.mark.parametrize("net", ZOO.values(), ids=ZOO)


def two_layers(middle: Callable[[Tensor], Tensor] = torch.relu, width: int = 6) -> nn.Module:
    """Two linear layers with something between them."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, width), nn.Linear(width, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(middle(self.a(x)))

    return Net()


X = torch.linspace(-1, 1, 12).view(3, 4)


def reasons(space: Space) -> dict[str, str]:
    return {pinned.name: pinned.reason for pinned in space.pinned}


# --- the zoo's expectations -------------------------------------------------------------------------------------


@nets
def test_zoo_expectations(net: ZooNet, space_of) -> None:
    """A name in ``free`` makes, or passes along, units of a free group. One in ``pinned`` does not, or says why.

    A tied weight is known under its first name, where one of its dimensions may be free (the embedding's width) and the
    other pinned (the vocabulary).
    """
    space = space_of(net.name)
    first = {alias: tensor.name for tensor in space.tensors.values() for alias in tensor.names}
    making = {site.tensor for site in space.sites if site.roles != {Role.IN}}

    def tensors(name: str) -> set[str]:
        return {canonical for alias, canonical in first.items() if alias == name or alias.rpartition(".")[0] == name}

    for name in net.free:
        assert tensors(name) & making, f"{name} should be free"
    told = reasons(space)
    for name in net.pinned:
        canonical = {tensor.rpartition(".")[0] or tensor for tensor in tensors(name)}
        assert canonical & told.keys() or not tensors(name) & making, f"{name} should be pinned"


# Heads, head sizes and widths are different things, even when their numbers happen to be equal.
ATTENTION_GROUPS = {
    "vit": {
        "patch": 12,
        "blocks.0.attn.body.attn.qkv:heads": 3,
        "blocks.0.attn.body.attn.qkv": 4,
        "blocks.0.ffn.body.ffn.up": 16,
        "blocks.1.attn.body.attn.qkv:heads": 3,
        "blocks.1.attn.body.attn.qkv": 4,
        "blocks.1.ffn.body.ffn.up": 16,
    },
    "attention_matmul": {
        "embed": 8,
        "blocks.0.attn.body.attn.q:heads": 3,
        "blocks.0.attn.body.attn.q": 4,
        "blocks.0.ffn.body.ffn.up": 12,
    },
    "attention_value_dim": {
        "embed": 8,
        "blocks.0.attn.body.attn.q:heads": 2,
        "blocks.0.attn.body.attn.q": 4,
        "blocks.0.attn.body.attn.v": 6,
        "blocks.0.ffn.body.ffn.up": 12,
    },
    "attention_module": {"embed:heads": 2, "embed": 4, "blocks.0.ffn.body.ffn.up": 12},
    "encoder": {"embed:heads": 2, "embed": 4, "blocks.0.linear1": 12, "blocks.1.linear1": 12},
    "gpt_tied": {
        "tok": 8,
        "blocks.0.attn.body.attn.qkv:heads": 2,
        "blocks.0.attn.body.attn.qkv": 4,
        "blocks.0.ffn.body.ffn.up": 16,
    },
    "nano_gpt": {"tok:heads": 4, "tok": 3, "blocks.0.ffn.body.ffn.up": 16, "blocks.1.ffn.body.ffn.up": 16},
    "nano_gpt_by_hand": {"tok:heads": 4, "tok": 3, "blocks.0.ffn.body.ffn.up": 16, "blocks.1.ffn.body.ffn.up": 16},
    "places": {"tok": 8},
    "reduced_tokens": {"embed": 8, "blocks.0.ffn.body.ffn.up": 12, "blocks.1.ffn.body.ffn.up": 12},
    "llama": {
        "tok": 8,
        "layer.attn.body.attn.q:heads": 2,
        "layer.attn.body.attn.q": 4,
        "layer.ffn.body.ffn.up": 12,
    },
    "attention_hard_view": {"embed": 8, "blocks.0.ffn.body.ffn.up": 12},
}


@pytest.mark.parametrize("name", ATTENTION_GROUPS)
def test_freedom_of_attention(name: str, space_of) -> None:
    """No freedom is lost: the width, the heads and the value size of these nets are groups of their own."""
    assert space_of(name).full == ATTENTION_GROUPS[name]


@nets
def test_two_traces_agree(net: ZooNet, space_of) -> None:
    assert describe(meristem.trace(*net.build(seed=1))) == describe(space_of(net.name))


def describe(space: Space) -> tuple[object, ...]:
    axes = {
        name: [(str(a), [(p.group, p.units.tolist()) for p in a.parts]) for a in space.axes(name)]
        for name in space.tensors
    }
    return (
        space,
        axes,
        [[str(axis) for axis in term.axes] for term in space.terms],
        [str(a.axis) for a in space.attributes],
    )


# --- nothing about the model changes ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resnet", "gpt_tied", "encoder", "lstm_lm"])
@pytest.mark.parametrize("training", [True, False])
def test_model_is_left_alone(name: str, training: bool) -> None:
    model, inputs = build(name, torch.float32)
    model.train(training)
    next(model.children()).train(not training)  # modes may differ inside
    modes = [module.training for module in model.modules()]
    hook = model.register_forward_hook(lambda *_: None)
    before = state_of(model)
    meristem.trace(model, inputs)
    assert_untouched(model, before)
    assert [module.training for module in model.modules()] == modes
    assert [len(module._forward_hooks) for module in model.modules()].count(1) == 1
    assert all(parameter.grad is None for parameter in model.parameters())
    hook.remove()


def needs_values(x: Tensor) -> Tensor:
    return torch.dropout(x if x.sum().item() < 1e6 else -x, 0.5, train=True)


@pytest.mark.parametrize(
    "middle",
    [
        nn.Dropout(0.5),
        lambda x: x + torch.randn_like(x),
        needs_values,
    ],
    ids=["dropout", "randn_like", "real numbers"],
)
def test_random_states_are_left_alone(middle) -> None:
    model = two_layers(middle)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    space = meristem.trace(model, X)
    assert list(space.groups) == ["a"]
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.random.get_state()[1].tolist() == states[2]


# --- inputs -----------------------------------------------------------------------------------------------------


def test_a_tensor_a_tuple_or_a_dict() -> None:
    model = two_layers()
    spaces = [meristem.trace(model, given) for given in (X, (X,), {"x": X})]
    assert describe(spaces[0]) == describe(spaces[1]) == describe(spaces[2])


@pytest.mark.parametrize("example", [(), {}, 3, "image", (1, 2)])
def test_no_tensor(example) -> None:
    with pytest.raises(TraceError, match=r"example_inputs holds no tensor; pass .* e\.g\. torch\.randn"):
        meristem.trace(two_layers(), example)


def test_not_a_module() -> None:
    with pytest.raises(TraceError, match=r"trace needs an nn\.Module, got function; pass the model itself"):
        meristem.trace(lambda x: x, X)  # type: ignore[arg-type]


class Raises(nn.Module):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.a, self.error = nn.Linear(4, 2), error

    def forward(self, x: Tensor) -> Tensor:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [RuntimeError("no"), AssertionError("no"), KeyError("no"), IndexError("no"), ZeroDivisionError("no")],
    ids=lambda error: type(error).__name__,
)
def test_a_model_that_does_not_run(error: Exception) -> None:
    with pytest.raises(TraceError, match=r"^the model does not run on the example inputs \(.*no.*\); call it with"):
        meristem.trace(Raises(error), X)


def test_an_input_of_the_wrong_shape_is_one_sentence() -> None:
    with pytest.raises(
        TraceError, match=r"^the model does not run on the example inputs \(.*\(2x5 and 4x6\)\)"
    ) as caught:
        meristem.trace(two_layers(), torch.ones(2, 5))
    assert "\n" not in str(caught.value)


def test_a_model_that_cannot_be_copied() -> None:
    model = two_layers()
    model.lock = (n for n in range(3))
    with pytest.raises(TraceError, match=r"the model cannot be copied .* must survive copy\.deepcopy"):
        meristem.trace(model, X)


def test_a_model_that_needs_real_values() -> None:
    """It is traced with real numbers instead, and says so."""
    space = meristem.trace(two_layers(lambda x: x if x.sum().item() < 1e6 else -x), X)
    assert list(space.groups) == ["a"]
    assert any("traced with real numbers, because it does not run on the meta device" in note for note in space.notes)


def test_a_model_that_runs_in_eval_mode_only() -> None:
    class EvalOnly(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                raise RuntimeError("not for training")
            return x

    space = meristem.trace(nn.Sequential(nn.Linear(4, 6), EvalOnly(), nn.Linear(6, 2)), X)
    assert list(space.groups) == ["0"]
    assert space.notes == ("read in evaluation mode only, because training mode does not run (not for training)",)


def test_inside_inference_mode() -> None:
    model = two_layers()
    with torch.inference_mode():
        assert list(meristem.trace(model, X).groups) == ["a"]


def test_inside_no_grad_and_autocast() -> None:
    model = two_layers()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert list(meristem.trace(model, X).groups) == ["a"]


# --- pin --------------------------------------------------------------------------------------------------------


def test_pin() -> None:
    model, inputs = ZOO["resnet"].build()
    space = meristem.trace(model, inputs, pin=["body.1.body.*.conv", "body.2.shortcut*"])
    assert set(space.groups) == {"body.2.body.0.conv"}
    assert reasons(space)["body.1.body.0.conv"] == "you pinned it (pin='body.1.body.*.conv')"


def test_pinning_one_maker_pins_all_it_is_coupled_with() -> None:
    """The stem and the block's last convolution meet in an add: one group, so both stay."""
    model, inputs = ZOO["resnet"].build()
    space = meristem.trace(model, inputs, pin=["body.0.conv"])
    assert reasons(space)["body.1.body.1.conv"] == "you pinned it (pin='body.0.conv')"


@pytest.mark.parametrize(("pattern", "near"), [("body.0.cnv", "body.0.conv"), ("haed", "head")])
def test_a_pattern_that_matches_nothing(pattern: str, near: str) -> None:
    model, inputs = ZOO["plain"].build()
    with pytest.raises(TraceError, match=rf"pin='{pattern}' matches no module; the nearest are .*{near}"):
        meristem.trace(model, inputs, pin=[pattern])


def test_pinning_a_container_pins_what_is_inside() -> None:
    model, inputs = ZOO["resnet"].build()
    space = meristem.trace(model, inputs, pin=["body.1"])
    assert not any(name.startswith("body.1.") for name in space.groups)


def test_pin_as_a_string() -> None:
    model, inputs = ZOO["plain"].build()
    assert "body.0.conv" not in meristem.trace(model, inputs, pin="body.0.*").groups


# --- what is not understood -------------------------------------------------------------------------------------


def test_the_order_of_channels_matters() -> None:
    """cumsum over channels: pinned, with the operation named; strict has nothing against a known operation."""
    model, inputs = ZOO["channel_cumsum"].build()
    space = meristem.trace(model, inputs, strict=True)
    assert reasons(space)["body.conv"] == "the order of its positions matters in cumsum in the model itself"


@torch.library.custom_op("meristem_tests::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return 2 * x


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def test_unknown_operation_pins_what_it_touches() -> None:
    space = meristem.trace(two_layers(twice), X)
    assert not space.groups
    assert reasons(space)["a"] == "meristem does not know the operation twice in the model itself"


def test_strict_refuses_an_unknown_operation() -> None:
    with pytest.raises(
        TraceError, match=r"meristem_tests::twice in the model is not known; .*rules=\[OpRule\('meristem_tests::twice'"
    ):
        meristem.trace(two_layers(twice), X, strict=True)


def test_op_rule() -> None:
    model = two_layers(twice)
    space = meristem.trace(model, X, rules=[OpRule("meristem_tests::twice", like="relu")], strict=True)
    assert list(space.groups) == ["a"]
    go(Live(model, space), half(space))
    assert run(model, (X,))[0].shape == (3, 2)


@torch.library.custom_op("meristem_tests::paired", mutates_args=())
def paired(x: Tensor, y: Tensor) -> Tensor:
    """Sample by sample the products of all pairs of the first tensor's and the second's numbers."""
    return torch.einsum("bi,bj->bij", x, y)


@paired.register_fake
def _(x: Tensor, y: Tensor) -> Tensor:
    return x.new_empty(*x.shape, y.shape[1])


paired.register_autograd(
    lambda ctx, grad: ((grad * ctx.saved_tensors[1][:, None]).sum(2), (grad * ctx.saved_tensors[0][:, :, None]).sum(1)),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


class Paired(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 6), nn.Linear(4, 5), nn.Linear(30, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(paired(self.a(x), self.b(x)).flatten(1))


def test_a_rule_that_is_a_function() -> None:
    """It says how labels flow; the proof and the masked reference use it like one of meristem's own."""

    def rule(context: Any, arguments: dict[str, Any], outs: Any) -> Any:
        (batch, rows), (other_batch, columns) = context.dims(arguments["x"]), context.dims(arguments["y"])
        return [[context.meet(batch, other_batch), rows, columns]]

    torch.manual_seed(0)
    model, x = Paired().double(), X.double()
    assert not meristem.trace(model, x).groups
    rules = [OpRule("meristem_tests::paired", rule=rule)]
    space = meristem.trace(model, x, rules=rules, strict=True)
    assert space.full == {"a": 6, "b": 5}
    full, live = copy.deepcopy(model), Live(model, space)
    go(live, half(space))
    reference = masked_reference(full, space, live.masks, (x,), rules=rules)
    torch.testing.assert_close(model(x), reference.outputs[0])


def test_a_rule_that_does_not_give_the_shape_pins() -> None:
    wrong = OpRule("meristem_tests::paired", rule=lambda context, a, outs: [context.dims(a["x"])])
    assert not meristem.trace(Paired(), X, rules=[wrong]).groups


def test_op_rules_say_one_thing() -> None:
    for bad, message in (
        (OpRule("meristem_tests::twice"), "needs either like=, a known operation, or rule=, a function"),
        (OpRule("meristem_tests::twice", like="rleu"), "no such operation is known; did you mean relu"),
    ):
        with pytest.raises(TraceError, match=message):
            meristem.trace(two_layers(twice), X, rules=[bad])


class Remembers(nn.Module):
    """A layer of the user's own that checks the width it was built with, under a name nobody knows."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.n = c
        self.scale = nn.Parameter(torch.rand(c))

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.n:
            raise ValueError(f"built for {self.n}")
        return x * self.scale


def test_layer_rule() -> None:
    net = nn.Sequential(nn.Linear(4, 6), Remembers(6), nn.Linear(6, 2))
    pinned = reasons(meristem.trace(net, X))
    assert "ValueError: built for 6" in pinned["0"]
    space = meristem.trace(net, X, rules=[LayerRule(Remembers, lambda layer: [("n", "scale", 0)])])
    assert list(space.groups) == ["0"]
    go(Live(net, space), half(space))
    assert net[1].n == 3
    assert net(X).shape == (3, 2)


def test_layer_rule_with_ties() -> None:
    """A rule may demand that two dimensions keep the same units, which no operation shows."""
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    assert set(meristem.trace(net, X).groups) == {"0", "2"}

    class Square(nn.Linear):
        pass

    net[2] = Square(6, 6)
    rule = LayerRule(Square, lambda layer: [], lambda layer: [[("weight", 0), ("weight", 1)]])
    assert set(meristem.trace(net, X, rules=[rule]).groups) == {"0"}


def test_a_hard_coded_view_is_pinned_with_the_reason() -> None:
    space = meristem.trace(two_layers(lambda x: x.view(3, 2, 3).flip(0).reshape(3, 6)), X)
    assert not space.groups
    assert "does not work with another size of it" in reasons(space)["a"]


def test_a_number_that_depends_on_the_width_is_pinned() -> None:
    """Scaling by 1/sqrt(width) would make the small network another function than the masked one."""
    space = meristem.trace(two_layers(lambda x: x * x.shape[-1] ** -0.5), X)
    assert "a number in the computation depends on its size" in reasons(space)["a"]


def test_what_a_users_hook_computes_is_traced() -> None:
    model = two_layers()
    model.a.register_forward_hook(lambda module, given, out: out.cumsum(-1))
    assert not meristem.trace(model, X).groups


# --- the space --------------------------------------------------------------------------------------------------


def test_space_is_frozen() -> None:
    space = meristem.trace(two_layers(), X)
    with pytest.raises(AttributeError):
        space.groups = {}  # type: ignore[misc]
    with pytest.raises(TypeError):
        space.groups["x"] = None  # type: ignore[index]


def test_single_units_are_pinned() -> None:
    """A group is never empty, so a layer of one unit has nothing to give."""
    space = meristem.trace(nn.Sequential(nn.Linear(4, 1), nn.Linear(1, 6), nn.Linear(6, 2)), X)
    assert list(space.groups) == ["1"]


@nets
def test_printed(net: ZooNet, space_of) -> None:
    """The table names every group, and every pinned maker with its reason."""
    space = space_of(net.name)
    text = str(space)
    for name in space.groups:
        assert name in text
    for pinned in space.pinned:
        assert pinned.name in text
