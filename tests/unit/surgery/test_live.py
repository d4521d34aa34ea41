"""The live model: what surgery keeps, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch import nn, optim

import meristem
from helpers import assert_untouched, build, go, half, loss, masks_equal, run, state_of, train, whole
from meristem import Live
from meristem.errors import PlanError, SurgeryError
from meristem.space.plan import Change, Plan

# --- refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [optim.LBFGS, optim.SparseAdam])
def test_unsupported_optimizer(kind: type[optim.Optimizer], space_of) -> None:
    model, _ = build("mlp")
    message = (
        f"the state of {kind.__name__} is not understood.*use one of SGD, Adam, AdamW, RMSprop, .*Lion, or say what it "
        rf"keeps: rules=\[meristem.rules.OptimizerRule\({kind.__name__}, "
    )
    with pytest.raises(SurgeryError, match=message):
        Live(model, space_of("mlp"), kind(model.parameters()))


def test_a_subclass_may_keep_other_state(space_of) -> None:
    class Mine(optim.SGD):
        pass

    model, _ = build("mlp")
    with pytest.raises(SurgeryError, match="the state of Mine is not understood"):
        Live(model, space_of("mlp"), Mine(model.parameters(), lr=0.1))


def test_optimizer_of_another_model(space_of) -> None:
    model, other = build("mlp")[0], build("mlp")[0]
    with pytest.raises(SurgeryError, match="optimizer"):
        Live(model, space_of("mlp"), optim.SGD(other.parameters(), lr=0.1))


def test_another_model(space_of) -> None:
    with pytest.raises(SurgeryError, match=r"the model has no tensor 'a.weight'.*trace it again"):
        Live(build("plain")[0], space_of("mlp"))


def test_a_model_that_is_not_full_size(space_of) -> None:
    model, _ = build("mlp")
    go(Live(model, space_of("mlp")), half(space_of("mlp")))
    with pytest.raises(
        SurgeryError, match=r"a.weight is \(4, 5\), but .* with \(8, 5\); a live model starts from the full"
    ):
        Live(model, space_of("mlp"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": Change((0,))}, "names the group 'x', which this space does not have"),
        ({"a": Change(keep=(0, 1))}, r"group 'a' was made for another state .* \(it has 8 live units\)"),
        ({"a": Change(keep=(), prune=tuple(range(8)))}, "leaves group 'a' empty; at least one unit"),
        ({"a": Change(keep=tuple(range(8)), grow=(99,))}, "group 'a'"),
        ({"a": Change(keep=tuple(range(8)), grow=(3,))}, "group 'a'"),
        ({"a": Change(keep=tuple(range(7)), prune=(7,), restore=(-1,))}, "group 'a'"),
        ({"a": Change(keep=tuple(range(7)), prune=(7,), grow=(7,))}, "group 'a'"),
    ],
    ids=["unknown group", "other state", "empty", "no such unit", "grow what lives", "negative", "prune and grow"],
)
def test_refused_plans_change_nothing(changes, message: str, space_of) -> None:
    model, _ = build("mlp")
    live = Live(model, space_of("mlp"))
    before, masks = state_of(model), live.masks
    with pytest.raises(PlanError, match=message):
        live.apply(Plan(changes))
    assert_untouched(model, before)
    assert masks_equal(live.masks, masks)


def test_a_plan_is_for_one_state(space_of) -> None:
    model, _ = build("mlp")
    live = Live(model, space_of("mlp"))
    stale = live.plan({"a": [0, 1]})
    go(live, {"a": [2, 3]})
    with pytest.raises(PlanError, match=r"made for another state .*; make it with live.plan"):
        live.apply(stale)


def test_start_with_an_unknown_group(space_of) -> None:
    with pytest.raises(PlanError, match="no group 'x'"):
        Live(build("mlp")[0], space_of("mlp"), start={"x": [0]})


# --- kept -------------------------------------------------------------------------------------------------------


def test_start_counts_as_never_lived(space_of) -> None:
    model, _ = build("mlp")
    live = Live(model, space_of("mlp"), start={"a": [1, 2]})
    assert live.widths == {"a": 2, "b": 6}
    assert live.plan({"a": [0, 1]}).changes["a"] == Change(keep=(1,), grow=(0,), prune=(2,))
    go(live, {"a": [1]})
    assert live.plan({"a": [1, 2]}).changes["a"].restore == (2,)


def test_masks_are_copies(space_of) -> None:
    live = Live(build("mlp")[0], space_of("mlp"))
    live.masks["a"][:] = False
    assert live.widths["a"] == 8


def test_remembered_sizes_follow(space_of) -> None:
    model, _ = build("attention_matmul")
    live = Live(model, space_of("attention_matmul"))
    whole_heads = {"blocks.0.attn.body.attn.q:heads": [1], "blocks.0.attn.body.attn.q": range(4)}
    go(live, {**half(live.space), **whole_heads})
    attention = model.blocks[0].attn.body.attn
    assert (attention.num_heads, attention.head_dim) == (1, 4)
    assert (attention.q.in_features, attention.q.out_features) == (4, 4)
    assert model.norm.normalized_shape == (4,)


def test_groups_that_are_not_named_stay_and_keep_their_parameters(space_of) -> None:
    """A parameter that does not change size is the same object: whoever holds it may go on."""
    model, _ = build("vgg")
    live = Live(model, space_of("vgg"))
    head, first = model.head.weight, model.a.conv.weight
    go(live, {"b.conv": [0, 1]})
    assert model.head.weight is head
    assert model.a.conv.weight is first


def test_the_same_plan_twice_is_nothing(space_of) -> None:
    model, _ = build("vgg")
    live = Live(model, space_of("vgg"))
    go(live, half(live.space))
    before = state_of(model)
    go(live, half(live.space))
    assert_untouched(model, before)


def test_tied_weights_stay_tied(space_of) -> None:
    model, inputs = build("gpt_tied")
    live = Live(model, space_of("gpt_tied"))
    for target in (half(live.space), whole(live.space)):
        go(live, target)
        assert model.head.weight is model.tok.weight
        assert model.head.in_features == model.tok.embedding_dim == model.tok.weight.shape[1]
        run(model, inputs)


def test_a_frozen_parameter_stays_frozen(space_of) -> None:
    model, inputs = build("resnet", torch.float32)
    model.body[0].requires_grad_(False)
    optimizer = optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    live = Live(model, space_of("resnet"), optimizer)
    for target in (half(live.space), whole(live.space)):
        go(live, target)
        assert not any(p.requires_grad for p in model.body[0].parameters())
        assert all(p.requires_grad for name, p in model.named_parameters() if not name.startswith("body.0."))
        train(model, optimizer, inputs, 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_dtype_is_kept(dtype: torch.dtype, space_of) -> None:
    model, _ = build("resnet", dtype)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    live = Live(model, space_of("resnet"), optimizer)
    for target in (half(live.space), whole(live.space)):
        go(live, target)
        assert {p.dtype for p in model.parameters()} == {dtype}
        assert {b.dtype for b in model.buffers()} == {dtype, torch.int64}
        assert {p.grad.dtype for p in model.parameters()} == {dtype}
        assert {s["momentum_buffer"].dtype for s in optimizer.state.values()} == {dtype}


def test_channels_last_is_kept(space_of) -> None:
    """Weights, gradients and moments; the first plan and the way back.

    Gradients are made by hand: torch 2.13 itself corrupts memory in the backward pass of a channels_last convolution
    with so few channels on the CPU.
    """
    model, _ = build("resnet", torch.float32)
    model.to(memory_format=torch.channels_last)
    optimizer = optim.Adam(model.parameters())
    live = Live(model, space_of("resnet"), optimizer)
    for target in (half(live.space), whole(live.space)):
        for parameter in model.parameters():
            parameter.grad = torch.rand_like(parameter)
        optimizer.step()
        go(live, target)
        for name, parameter in model.named_parameters():
            if parameter.dim() == 4 and parameter.shape[2:] != (1, 1):
                state = optimizer.state[parameter]
                for tensor in (parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"]):
                    assert tensor.is_contiguous(memory_format=torch.channels_last), name
                    assert not tensor.is_contiguous(), name


def test_several_param_groups_are_kept(space_of) -> None:
    model, inputs = build("plain", torch.float32)
    optimizer = optim.SGD(
        [
            {"params": model.head.parameters(), "lr": 0.5},
            {"params": model.body[1].parameters(), "lr": 0.25, "name": "late"},
            {"params": model.body[0].parameters()},
        ],
        lr=0.1,
        momentum=0.9,
    )
    train(model, optimizer, inputs, 1)
    live = Live(model, space_of("plain"), optimizer)
    go(live, half(live.space))
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.25, 0.1]
    for group, owner in zip(optimizer.param_groups, (model.head, model.body[1], model.body[0]), strict=True):
        assert [id(p) for p in group["params"]] == [id(p) for p in owner.parameters()]
    assert optimizer.param_groups[1]["name"] == "late"
    train(model, optimizer, inputs, 1)


def test_hooks_and_modes_of_the_user_survive(space_of) -> None:
    model, inputs = build("plain", torch.float32)
    seen = []
    model.body[0].conv.register_forward_hook(lambda module, given, out: seen.append(out.shape[1]))
    model.body[1].register_full_backward_hook(lambda *_: seen.append("back"))
    model.body[0].eval()
    live = Live(model, space_of("plain"))
    go(live, {"body.0.conv": [0, 1]})
    loss(run(model, inputs)).backward()
    assert seen == [2, "back"]
    assert model.training
    assert not model.body[0].conv.training


def test_gradients_of_survivors_are_kept(space_of) -> None:
    """A plan between backward and step: survivors keep their gradient, what comes in has none."""
    model, inputs = build("mlp")
    live = Live(model, space_of("mlp"), start={"a": range(6)})
    loss(run(model, inputs)).backward()
    before = model.a.weight.grad.clone()
    go(live, {"a": [0, 1, 2, 7]})
    assert torch.equal(model.a.weight.grad[:3], before[:3])
    assert not model.a.weight.grad[3].any()


def test_gradient_accumulation_across_a_plan(space_of) -> None:
    """Two half batches with a plan between them: the sum is that of survivors, and the optimizer steps once."""
    model, _ = build("bare_parameters")
    maker = torch.Generator().manual_seed(0)
    one, two = (torch.randn(3, 5, generator=maker, dtype=torch.float64) for _ in range(2))
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    live = Live(model, space_of("bare_parameters"), optimizer)
    loss(run(model, (one,))).backward()
    first = model.mix.grad.clone()
    go(live, {"mix": [0, 2, 4]})
    loss(run(model, (two,))).backward()
    alone = torch.autograd.grad(loss(run(model, (two,))), model.mix)[0]
    torch.testing.assert_close(model.mix.grad, first[:, [0, 2, 4]] + alone)
    optimizer.step()


def test_pruned_memory_is_really_gone(space_of) -> None:
    """The device holds the small tensors only: no view of a large storage."""
    model, inputs = build("resnet", torch.float32)
    optimizer = optim.Adam(model.parameters())
    train(model, optimizer, inputs, 1)
    live = Live(model, space_of("resnet"), optimizer)
    go(live, half(live.space))
    for parameter in model.parameters():
        for tensor in (parameter, parameter.grad, *optimizer.state[parameter].values()):
            assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def test_a_copy_of_the_model_trains_like_the_original(space_of) -> None:
    """The live model is plain: a deep copy of it is independent of the live one and of its store."""
    import copy

    model, inputs = build("resnet", torch.float32)
    live = Live(model, space_of("resnet"))
    go(live, half(live.space))
    twin = copy.deepcopy(model)
    go(live, whole(live.space))
    assert twin.body[0].conv.weight.shape[0] == 3
    loss(run(twin, inputs)).backward()


def test_multiple_lives_of_one_space(space_of) -> None:
    """A space holds no state: two models of one class are resized independently."""
    one, two = (Live(build("mlp")[0], space_of("mlp")) for _ in range(2))
    go(one, {"a": [0]})
    assert two.widths["a"] == 8
    assert two.model.a.weight.shape == (8, 5)


def test_a_parametrized_weight() -> None:
    """It has other names and is computed from two tensors; both are resized."""
    net = nn.Sequential(nn.Linear(4, 6), nn.utils.parametrizations.weight_norm(nn.Linear(6, 5)), nn.Linear(5, 2))
    x = torch.ones(2, 4)
    live = Live(net, meristem.trace(net, x))
    go(live, half(live.space))
    assert net[1].weight.shape == (3, 3)
    assert net(x).shape == (2, 2)
