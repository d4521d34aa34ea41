"""The grower in loops as users write them: accumulation, clipping, mixed precision, schedulers, wrappers, mistakes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed
from torch import Tensor, nn, optim
from torch.optim import lr_scheduler

import meristem
from growing import PRESETS, Growth, assert_same, everything
from helpers import assert_all_near, assert_untouched, build, loss, masks_equal, run, state_of
from meristem import Budget, Grower, MeristemError, Method, methods
from meristem.control.draws import Even
from meristem.control.exact import Exact
from meristem.control.trained_gates import TrainedGates
from meristem.gating.kinds import Concrete, GatePlacement, Sigmoid
from meristem.history import read_history
from meristem_bench.models import resnet20

HALF = Budget(params="50%")
# Gates that scale, with a freeze, noise, or where units are made: more than the presets have.
SCALING = {
    "sigmoid": Method(TrainedGates(), Exact(draw=Even()), gate=Sigmoid()),
    "concrete": Method(TrainedGates(), Exact(draw=Even()), gate=Concrete()),
    "making": Method(TrainedGates(), Exact(draw=Even()), gate=Sigmoid(), placement=GatePlacement.FILTER),
}
ALL = {**{name.partition(":")[0]: methods.parse_method(name) for name in PRESETS}, **SCALING}


def grower(
    name: str, space_of, preset: str | Method = "default", optimizer: Any = None, **more: Any
) -> tuple[Grower, tuple[Tensor, ...]]:
    model, inputs = build(name, torch.float32)
    made = (optimizer or (lambda params: optim.SGD(params, lr=0.05, momentum=0.9)))(model.parameters())
    method = ALL[preset] if isinstance(preset, str) else preset
    settings = {"budget": HALF, "epochs": 4, "method": method, "space": space_of(name), **more}
    return Grower(model, made, inputs, **settings), inputs


def scores(found: Grower) -> np.ndarray:
    return np.concatenate(list(found._growth.decider.keeper.scores(found._growth.gating.signals()).values()))


def optimizer_hooks(optimizer: optim.Optimizer) -> int:
    return len(optimizer._optimizer_step_pre_hooks) + len(optimizer._optimizer_step_post_hooks)


def forward_hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


# --- how users step -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["default", "gates", "paper"])
def test_gradient_accumulation(preset: str, space_of) -> None:
    """Two backward passes of half the batch are one of the whole: as many steps, the same plan, near weights."""
    found = []
    for pieces in (1, 2):
        grown, _ = grower("plain_no_norm", space_of, preset)
        data = torch.Generator().manual_seed(0)
        for _ in range(4):
            for _ in range(2):
                x = torch.randn(4, 3, 8, 8, generator=data)
                grown.optimizer.zero_grad()
                for part in x.chunk(pieces):
                    (grown.model(part).square().mean() / pieces).backward()
                grown.optimizer.step()
            grown.step()
        found.append(grown)
    one, two = found
    assert [record["steps"] for record in two.records] == [2] * 4
    assert masks_equal(one.live.masks, two.live.masks)
    assert scores(two) == pytest.approx(scores(one), rel=1e-3, abs=1e-6)
    assert_all_near(list(two.model.parameters()), list(one.model.parameters()), 1e-4)


def test_clipping(space_of) -> None:
    """Clipped before the step, the grower sees what the weights get: a tenth of the pull, a hundredth of its square."""
    found = []
    for clip in (False, True):
        grown, inputs = grower("plain", space_of)
        loss(run(grown.model, inputs)).backward()
        if clip:
            norm = nn.utils.get_total_norm([p.grad for p in grown.model.parameters()])
            nn.utils.clip_grad_norm_(grown.model.parameters(), float(norm) / 10)
        grown.optimizer.step()
        grown.step()
        found.append(scores(grown))
    assert found[1] == pytest.approx(found[0] / 100, rel=1e-3)


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_autocast(preset: str, space_of) -> None:
    """bfloat16 inside, float32 outside; the plan is met and what is exported computes the same."""
    grown, inputs = grower("resnet", space_of, preset)
    for _ in range(4):
        for _ in range(2):
            grown.optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = run(grown.model, inputs)
            loss(x.float() for x in out).backward()
            grown.optimizer.step()
        grown.step()
    assert np.isfinite(scores(grown)).all()
    assert all(p.dtype == torch.float32 and p.isfinite().all() for p in grown.model.parameters())
    assert grown.records[-1]["params_frac"] <= 0.5
    grown.model.eval()
    assert_all_near(run(grown.export(), inputs), run(grown.model, inputs), 1e-5)


def scaled_run(space_of, preset: str, overflow: int | None, scaled: bool = True, **settings: Any) -> Grower:
    """Four epochs of three steps with a gradient scaler; in step ``overflow`` a gradient is infinite."""
    grown, inputs = grower("plain", space_of, preset, lambda params: optim.SGD(params, lr=0.05, **settings))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
    for number in range(12):
        grown.optimizer.zero_grad()
        scaler.scale(loss(run(grown.model, inputs))).backward()
        if number == overflow:
            grown.model.head.weight.grad[0, 0] = torch.inf
        scaler.step(grown.optimizer)
        scaler.update()
        if number % 3 == 2:
            grown.step()
    return grown


@pytest.mark.parametrize("preset", ["default", "gates", "paper"])
def test_gradient_scaler(preset: str, space_of) -> None:
    """The scaler divides before the step: the grower sees true gradients, and not the step that is skipped."""
    plain, scaled = scaled_run(space_of, preset, None, scaled=False), scaled_run(space_of, preset, None)
    assert scores(scaled) == pytest.approx(scores(plain), rel=1e-3, abs=1e-5)
    skipped = scaled_run(space_of, preset, 4)
    assert [record["steps"] for record in skipped.records] == [3, 2, 3, 3]
    assert np.isfinite(scores(skipped)).all()
    assert all(p.isfinite().all() for p in skipped.model.parameters())


@pytest.mark.parametrize("preset", ["default", "gates"])
def test_gradient_scaler_with_a_fused_optimizer(preset: str, space_of) -> None:
    """A fused optimizer is handed scaled gradients and divides them itself; the grower must see true ones as well."""
    plain = scaled_run(space_of, preset, None, scaled=False, fused=True)
    scaled = scaled_run(space_of, preset, None, fused=True)
    assert scores(scaled) == pytest.approx(scores(plain), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("preset", list(ALL))
def test_a_run_that_diverges(preset: str, space_of) -> None:
    """Gradients and then weights that are no numbers teach nothing, and the plan is kept nevertheless."""
    grown, _ = grower("plain", space_of, preset)
    for _ in range(4):
        for parameter in grown.model.parameters():
            parameter.grad = torch.full_like(parameter, torch.nan)
        grown.optimizer.step()
        grown.step()
    assert np.isfinite(scores(grown)).all()
    assert grown.records[-1]["params_frac"] <= 0.5


def test_closure(space_of) -> None:
    """Gradients made inside the step are seen before the weights change, as in a loop without a closure."""
    found = []
    for closed in (False, True):
        grown, inputs = grower("plain", space_of, "default", lambda params: optim.SGD(params, lr=0.1))

        def backward(grown: Grower = grown, inputs: tuple[Tensor, ...] = inputs) -> Tensor:
            grown.optimizer.zero_grad()
            value = loss(run(grown.model, inputs))
            value.backward()
            return value

        for _ in range(4):
            for number in range(2):
                if closed and number:
                    grown.optimizer.step(closure=backward)
                elif closed:
                    grown.optimizer.step(backward)
                else:
                    backward()
                    grown.optimizer.step()
            assert grown.step()["steps"] == 2
        found.append(grown)
    assert masks_equal(found[0].live.masks, found[1].live.masks)
    assert scores(found[1]) == pytest.approx(scores(found[0]), rel=0, abs=0)


SCHEDULES: dict[str, Callable[[optim.Optimizer], Any]] = {
    "cosine": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 4),
    "warmup": lambda optimizer: lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2),
    "one cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9),
    "lambda": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_scheduler_made_before_or_after(schedule: str, space_of) -> None:
    """It is the same schedule, so it is the same run: learning rates of weights and gates, plans and all."""
    found = []
    for first in (True, False):
        model, inputs = build("plain", torch.float32)
        optimizer = optim.SGD(model.parameters(), lr=0.05)
        made = [SCHEDULES[schedule](optimizer)] if first else []
        grown = Grower(
            model, optimizer, inputs, budget=HALF, epochs=4, method=ALL["gates"], space=space_of("plain"), seed=2
        )
        made = made or [SCHEDULES[schedule](optimizer)]
        rates = []
        for _ in range(4):
            for _ in range(2):
                optimizer.zero_grad()
                loss(run(model, inputs)).backward()
                optimizer.step()
            made[0].step()
            rates.append(grown._growth.gating.lr_frac)
            grown.step()
        found.append((grown, rates))
    (one, before), (two, after) = found
    assert before == after
    assert len(set(before)) > 1
    assert masks_equal(one.live.masks, two.live.masks)
    assert np.array_equal(scores(one), scores(two))
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True))


def test_frozen_parameters(space_of) -> None:
    """A user who trains the head alone: what has no gradient has no pull, and the rest works."""
    grown, inputs = grower("plain", space_of)
    for name, parameter in grown.model.named_parameters():
        parameter.requires_grad_(name.startswith("head"))
    for _ in range(4):
        grown.optimizer.zero_grad()
        loss(run(grown.model, inputs)).backward()
        grown.optimizer.step()
        grown.step()
    assert grown.records[-1]["params_frac"] <= 0.5
    assert [n for n, p in grown.model.named_parameters() if p.requires_grad] == ["head.weight", "head.bias"]


@pytest.mark.parametrize("preset", list(ALL))
def test_epochs_without_a_step(preset: str, space_of) -> None:
    """Nothing was learned, so nothing is known; the plan is kept and later steps teach in sane amounts."""
    grown, inputs = grower("plain", space_of, preset)
    for number in range(4):
        if number > 1:
            grown.optimizer.zero_grad()
            loss(run(grown.model, inputs)).backward()
            grown.optimizer.step()
        record = grown.step()
        assert record["steps"] == (number > 1)
    assert np.isfinite(scores(grown)).all()
    assert np.abs(scores(grown)).max() < 100
    assert grown.records[-1]["params_frac"] <= 0.5


# --- wrappers -----------------------------------------------------------------------------------------------------


def wrapped_run(space_of, wrap: Callable[[nn.Module], nn.Module]) -> Grower:
    """The user makes the grower with the wrapper and trains through it; wrapped again where torch needs that."""
    model, inputs = build("mlp", torch.float32)
    optimizer = optim.SGD(model.parameters(), lr=0.05)
    outer = wrap(model)
    grown = Grower(outer, optimizer, inputs, budget=HALF, epochs=3, space=space_of("mlp"))
    assert grown.model is model
    for _ in range(3):
        outer = wrap(model)
        for _ in range(2):
            optimizer.zero_grad()
            loss(run(outer, inputs)).backward()
            optimizer.step()
        grown.step()
    return grown


def assert_same_run(one: Grower, two: Grower, relative: float) -> None:
    assert masks_equal(one.live.masks, two.live.masks)
    assert scores(two) == pytest.approx(scores(one), rel=1e-3)
    assert_all_near(list(two.model.parameters()), list(one.model.parameters()), relative)


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_a_wrapper_follows_and_a_stale_one_refuses_to_run(one_process: None) -> None:
    """Stale, it would train on, with the gradients of each rank alone."""
    model, x = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(4, 5)
    wrapped = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    grower = meristem.Grower(wrapped, optimizer, x, epochs=2, budget="60%")
    wrapped(x)
    grower.live.apply(grower.live.plan({name: range(1) for name in grower.space.groups}))
    with pytest.raises(meristem.MeristemError, match="changed behind the grower's back; wrap it again"):
        wrapped(x)
    nn.parallel.DistributedDataParallel(grower.model)(x)


def test_data_parallel_wrappers(one_process: None, space_of) -> None:
    plain = wrapped_run(space_of, lambda model: model)
    assert_same_run(plain, wrapped_run(space_of, nn.parallel.DistributedDataParallel), 1e-6)
    assert_same_run(plain, wrapped_run(space_of, nn.DataParallel), 1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_model(space_of) -> None:
    """One compiled object for the whole run: it is compiled again when widths change, and trains the same numbers."""
    compiled: dict[int, nn.Module] = {}

    def wrap(model: nn.Module) -> nn.Module:
        return compiled.setdefault(id(model), torch.compile(model, backend="aot_eager"))

    assert_same_run(wrapped_run(space_of, lambda model: model), wrapped_run(space_of, wrap), 1e-4)


def test_a_module_that_only_looks_like_a_wrapper(space_of) -> None:
    """A user's own class may well have an attribute called ``module``."""

    class Mine(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module
            self.after = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.after(self.module(x).relu())

    inner, inputs = build("mlp", torch.float32)
    model = Mine(inner)
    grown = Grower(model, optim.SGD(model.parameters(), lr=0.1), inputs, budget=HALF, epochs=2)
    assert grown.model is model


# --- the schedule of a run ------------------------------------------------------------------------------------------


def test_called_too_often(space_of) -> None:
    """The message says what happened, what the grower was made for and what to do; nothing has changed."""
    growth = Growth("mlp", space_of("mlp"), epochs=2).go()
    before = everything(growth)
    with pytest.raises(MeristemError, match=r"called more than 2 times.*epochs=2.*once per epoch"):
        growth.grower.step()
    assert_same(everything(growth), before)


@pytest.mark.parametrize("preset", ALL)
@pytest.mark.parametrize("epochs", [1, 2])
def test_very_short_runs(epochs: int, preset: str, space_of) -> None:
    """Train, step, done: under the budget, one record an epoch, and the last step changes no structure."""
    grown, inputs = grower("plain", space_of, preset, epochs=epochs)
    for number in range(epochs):
        grown.optimizer.zero_grad()
        loss(run(grown.model, inputs)).backward()
        grown.optimizer.step()
        before = grown.live.masks
        record = grown.step()
        assert record["epoch"] == number + 1
        assert record["progress"] == (number + 1) / epochs
    assert record["frozen"]
    assert masks_equal(grown.live.masks, before)
    assert record["params_frac"] <= 0.5
    grown.export()


@pytest.mark.parametrize(
    ("name", "preset"), [*(("plain", preset) for preset in ALL), ("resnet", "paper"), ("lstm_lm", "paper")]
)
def test_export_at_any_time_is_the_live_model(name: str, preset: str, space_of) -> None:
    """Before the first step, inside an epoch, after each, after the last: same outputs, no hook, its own tensors."""
    growth = Growth(name, space_of(name), ALL[preset], epochs=4)
    original, _ = build(name, torch.float32)

    def check() -> None:
        plain = growth.grower.export().eval()
        training = growth.model.training
        growth.model.eval()
        with torch.no_grad():
            assert_all_near(run(plain, growth.inputs), run(growth.model, growth.inputs), 1e-5)
        growth.model.train(training)
        assert forward_hooks(plain) == 0
        assert [type(m) for m in plain.modules()] == [type(m) for m in original.modules()]
        assert not {id(p) for p in plain.parameters()} & {id(p) for p in growth.model.parameters()}
        assert sum(p.numel() for p in plain.parameters()) == meristem.count_params(
            growth.grower.space, growth.grower.widths
        )

    check()
    for point in (1, 2, 4, 6, 7, 8):
        growth.go(point)
        check()


@pytest.mark.parametrize("preset", ["default", "paper", "making"])
def test_save_and_load(preset: str, space_of, tmp_path: Path) -> None:
    growth = Growth("resnet", space_of("resnet"), ALL[preset], epochs=4).go()
    growth.grower.save(tmp_path / "small")
    fresh, inputs = build("resnet", torch.float32)
    loaded = meristem.load(tmp_path / "small", fresh).eval()
    with torch.no_grad():
        assert_all_near(run(loaded, inputs), run(growth.model.eval(), inputs), 1e-5)


@pytest.mark.parametrize("preset", ALL)
@pytest.mark.parametrize("epochs", [4, 5])
def test_what_is_returned_is_what_was_trained(preset: str, epochs: int, space_of) -> None:
    """The last step() decides nothing any more, so it must not change the function: no draw, and no gate either."""
    growth = Growth("plain", space_of("plain"), ALL[preset], epochs=epochs, steps=3).go(3 * epochs - 1)
    growth.steps = 99  # step() is called here
    growth.go(3 * epochs)
    growth.model.eval()
    with torch.no_grad():
        before = run(growth.model, growth.inputs)
        growth.grower.step()
        after = run(growth.model, growth.inputs)
    assert_all_near(after, before, 1e-6)


@pytest.mark.parametrize("preset", ["default", "gates", "paper"])
def test_hooks_are_gone_after_the_last_epoch(preset: str, space_of) -> None:
    """The optimizer is the user's again, who may well train on; only gates that scale stay: they are the function."""
    growth = Growth("resnet", space_of("resnet"), preset, epochs=3)
    assert optimizer_hooks(growth.optimizer) == 2
    growth.go()
    assert optimizer_hooks(growth.optimizer) == 0
    if preset != "paper":
        assert forward_hooks(growth.model) == 0
    assert forward_hooks(growth.grower.export()) == 0
    before, told = growth.grower.widths, len(growth.grower.records)
    growth.steps = 99
    growth.go(growth.done + 3)
    assert (growth.grower.widths, len(growth.grower.records)) == (before, told)


def test_hooks_are_gone_after_resuming_a_finished_run(space_of, tmp_path: Path) -> None:
    growth = Growth("resnet", space_of("resnet"), epochs=3).go()
    growth.save(tmp_path / "run")
    again = Growth("resnet", space_of("resnet"), epochs=3).resume(tmp_path / "run")
    assert optimizer_hooks(again.optimizer) == 0


def test_training_mode_and_gradients_are_left_alone(space_of) -> None:
    for training in (True, False):
        model, inputs = build("resnet", torch.float32)
        model.train(training)
        model.body[0].eval()
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        grown = Grower(model, optimizer, inputs, budget=HALF, epochs=2)
        optimizer.step()
        grown.step()
        grown.export()
        assert model.training == model.head.training == training
        assert not model.body[0].training


def test_records(space_of, tmp_path: Path) -> None:
    """What a record says is what was: widths and cost of the network that ran, its steps, and the user's metrics."""
    grown, inputs = grower("resnet", space_of, epochs=3, batch_size=64, history=tmp_path / "history.jsonl")
    spent = 0.0
    for number in range(3):
        for _ in range(number + 1):
            grown.optimizer.zero_grad()
            loss(run(grown.model, inputs)).backward()
            grown.optimizer.step()
        params, widths = sum(p.numel() for p in grown.model.parameters()), grown.widths
        record = grown.step(loss=torch.tensor(0.5), accuracy=1)
        macs = meristem.count_macs(grown.space, widths)
        spent += 3 * (number + 1) * macs * 64 / 2  # the example has two samples
        assert record["widths"] == widths
        assert record["params"] == params
        assert record["macs"] == macs
        assert record["steps"] == number + 1
        assert record["metrics"] == {"loss": 0.5, "accuracy": 1.0}
        assert record["spend_macs"] == pytest.approx(spent)
        dense = 3 * (number + 1) * (number + 2) / 2 * meristem.count_macs(grown.space) * 32
        assert record["dense_spend_macs"] == pytest.approx(dense)
        assert record["spend_frac"] == pytest.approx(spent / dense)
        assert record["seconds"] > 0
        assert record["peak_bytes"] > 0
    assert read_history(tmp_path / "history.jsonl") == grown.records


def test_a_batch_size_needs_the_example(space_of) -> None:
    """The macs of a space are those of the example it was traced with, and a space does not say how many samples."""
    model, inputs = build("mlp", torch.float32)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(MeristemError, match="batch_size needs example_inputs"):
        Grower(model, optimizer, budget=HALF, epochs=1, space=space_of("mlp"), batch_size=8)
    made = Grower(model, optimizer, inputs, budget=HALF, epochs=1, space=space_of("mlp"), batch_size=8)
    assert made.ledger.dense_macs == meristem.count_macs(made.space) * 8 / len(inputs[0])


# --- mistakes -----------------------------------------------------------------------------------------------------


def wrong(**arguments: Any) -> Callable[[], dict[str, Any]]:
    return lambda: arguments


MISTAKES: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "no epochs": (wrong(epochs=0), "epochs must be a whole number of at least 1, got 0"),
    "negative epochs": (wrong(epochs=-3), "epochs must be a whole number"),
    "epochs as text": (wrong(epochs="3"), "epochs must be a whole number of at least 1, got '3'"),
    "half an epoch": (wrong(epochs=2.5), "epochs must be a whole number"),
    "epochs as truth": (wrong(epochs=True), "epochs must be a whole number"),
    "budget as text": (wrong(budget="much"), "is not of the form params=36%"),
    "no budget": (wrong(budget=None), "a grower needs a budget"),
    "budget as number": (wrong(budget=0.36), "(?i)budget"),
    "unreachable budget": (wrong(budget=Budget(params=3)), "cannot be met"),
    "method as text": (wrong(method="papre"), "there is no method 'papre'; did you mean paper"),
    "method not called": (wrong(method=methods.paper), "(?i)method"),
    "no example": (wrong(example_inputs=None, space=None), "needs example_inputs .* or a traced space"),
    "not a space": (wrong(space="resnet"), "(?i)space"),
    "no optimizer": (wrong(optimizer=None), "(?i)optimizer"),
    "seed as text": (wrong(seed="a"), "(?i)seed"),
    "negative seed": (wrong(seed=-1), "(?i)seed"),
    "no batch": (wrong(batch_size=0), "(?i)batch_size"),
    "batch as text": (wrong(batch_size="8"), "(?i)batch_size"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake: str, space_of) -> None:
    """A MeristemError that names the argument, and a model and an optimizer as they were."""
    arguments, message = MISTAKES[mistake]
    model, inputs = build("resnet", torch.float32)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    given = {
        "model": model,
        "optimizer": optimizer,
        "example_inputs": inputs,
        "budget": HALF,
        "epochs": 3,
        "space": space_of("resnet"),
        **arguments(),
    }
    before = state_of(model)
    with pytest.raises(MeristemError, match=message):
        Grower(**given)
    assert_untouched(model, before)
    assert optimizer_hooks(optimizer) == 0
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [id(p) for p in model.parameters()]


def test_unsupported_optimizers(space_of) -> None:
    model, inputs = build("resnet", torch.float32)
    before = state_of(model)
    with pytest.raises(MeristemError, match=r"the state of LBFGS is not understood.*use one of SGD, Adam"):
        Grower(model, optim.LBFGS(model.parameters()), inputs, budget=HALF, epochs=3, space=space_of("resnet"))
    stranger = optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    with pytest.raises(MeristemError, match=r"holds none of the model's parameters.*model\.parameters\(\)"):
        Grower(model, stranger, inputs, budget=HALF, epochs=3, space=space_of("resnet"))
    assert_untouched(model, before)
    assert optimizer_hooks(stranger) == 0


def test_nothing_is_free() -> None:
    model = nn.Linear(5, 3)
    with pytest.raises(MeristemError, match=r"nothing in this model can grow; print.* lists what is pinned and why"):
        Grower(model, optim.SGD(model.parameters(), lr=0.1), torch.ones(2, 5), budget=HALF, epochs=3)


def test_a_history_that_cannot_be_written(space_of, tmp_path: Path) -> None:
    model, inputs = build("mlp", torch.float32)
    before = state_of(model)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(MeristemError, match="history cannot be written"):
        Grower(model, optimizer, inputs, budget=HALF, epochs=3, space=space_of("mlp"), history=tmp_path)
    assert_untouched(model, before)


def test_a_freeze_at_the_very_start(space_of) -> None:
    """Nothing is ever decided: the first network is the budget's, and stays."""
    grown, inputs = grower("resnet", space_of, replace(ALL["default"], freeze=0.0))
    first = grown.live.masks
    for _ in range(4):
        grown.optimizer.zero_grad()
        loss(run(grown.model, inputs)).backward()
        grown.optimizer.step()
        grown.step()
    assert masks_equal(first, grown.live.masks)
    assert 0.3 < grown.records[0]["params_frac"] <= 0.5


# --- what the loop must respect ------------------------------------------------------------------------------------


def test_what_is_trained_must_be_in_the_optimizer() -> None:
    """A resized parameter takes its place in the one optimizer; in a second one it would stop training unseen."""
    model, inputs = build("mlp", torch.float32)
    first, *rest = model.parameters()
    with pytest.raises(MeristemError, match=r"\d+ trained parameters are not in the optimizer"):
        Grower(model, optim.SGD([first], lr=0.1), inputs, budget=HALF, epochs=2)
    for parameter in rest:
        parameter.requires_grad_(False)
    Grower(model, optim.SGD([first], lr=0.1), inputs, budget=HALF, epochs=2, frozen="resize")


def test_an_export_before_the_landing_says_that_it_stands_above_the_budget(caplog: pytest.LogCaptureFixture) -> None:
    model, inputs = build("mlp", torch.float32)
    grower = Grower(model, optim.SGD(model.parameters(), lr=0.1), inputs, budget=HALF, epochs=1)
    grower.export()
    assert not caplog.text
    grower.live.apply(grower.live.plan({name: range(group.units) for name, group in grower.space.groups.items()}))
    grower.export()
    assert "above its budget: params 100.0% of the full model, 50.0% in the budget" in caplog.text


def test_a_model_that_is_not_trained() -> None:
    model, inputs = build("mlp", torch.float32)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    model.requires_grad_(False)
    with pytest.raises(MeristemError, match="no parameter of the model is trained"):
        Grower(model, optimizer, inputs, budget=HALF, epochs=2)


def test_one_grower_a_model() -> None:
    model, inputs = build("mlp", torch.float32)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    Grower(model, optimizer, inputs, budget=HALF, epochs=2)
    with pytest.raises(MeristemError, match="already belongs to a grower"):
        Grower(model, optimizer, inputs, budget=HALF, epochs=2)


def test_another_grower_with_an_optimizer_of_its_own() -> None:
    """It would take the small network for the full one, and forget what was cut; an export is a model anew."""
    model, inputs = build("mlp", torch.float32)
    first = Grower(model, optim.SGD(model.parameters(), lr=0.1), inputs, budget=HALF, epochs=2)
    for _ in range(2):
        with pytest.raises(
            MeristemError, match=r"has been made smaller by another grower.*grow what its export\(\) returns"
        ):
            Grower(model, optim.SGD(model.parameters(), lr=0.1), inputs, budget=HALF, epochs=2)
        first.step()
    small = first.export()
    again = Grower(small, optim.SGD(small.parameters(), lr=0.1), inputs, budget=HALF, epochs=2)
    assert all(again.space.full[name] <= width for name, width in first.widths.items())


def test_outputs_that_keep_their_size_are_chosen() -> None:
    class WithHidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(5, 8), nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            hidden = torch.relu(self.one(x))
            return self.two(hidden), hidden

    def grower(**settings: Any) -> Grower:
        model = WithHidden()
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        return Grower(model, optimizer, torch.randn(2, 5), budget=HALF, epochs=2, **settings)

    with pytest.raises(MeristemError, match="nothing in this model can grow"):
        grower()
    assert grower(outputs=0).widths["one"] < 8
    assert grower(outputs=[0], space=meristem.trace(WithHidden(), torch.randn(2, 5), outputs=[0])).space.full == {
        "one": 8
    }
    with pytest.raises(MeristemError, match="this space was not traced with outputs=1: say so in trace"):
        grower(outputs=1, space=meristem.trace(WithHidden(), torch.randn(2, 5), outputs=0))


def test_a_parameter_exchanged_behind_the_growers_back() -> None:
    model, inputs = build("mlp", torch.float32)
    grower = Grower(model, optim.SGD(model.parameters(), lr=0.1), inputs, budget=HALF, epochs=2)
    name, parameter = next(iter(model.named_parameters()))
    path, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(path), leaf, nn.Parameter(parameter.detach().clone()))
    with pytest.raises(MeristemError, match=f"{name} is not the parameter it was"):
        grower.step()


@pytest.mark.parametrize("value", ["high", None, [1.0]])
def test_metrics_are_numbers(value: object) -> None:
    model, inputs = build("mlp", torch.float32)
    grower = Grower(model, optim.SGD(model.parameters(), lr=0.1), inputs, budget=HALF, epochs=2)
    with pytest.raises(MeristemError, match="the metric accuracy must be one number"):
        grower.step(accuracy=value)  # type: ignore[arg-type]
    assert grower.epoch == 0


# --- what the budget does not name --------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "one"), [("default", True), ("uniform", True), ("search", False), ("paper", False)])
def test_what_is_not_named_is_told_before_the_run(method: str, one: bool) -> None:
    """One number where the widths follow from the budget, a range where they are found: the network lies in it."""
    model, inputs = resnet20(), torch.randn(1, 3, 16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    grower = meristem.Grower(model, optimizer, inputs, budget="36%", epochs=3, method=method)
    (low, high) = grower.expected_costs.pop("macs")
    assert (low == high) is one
    assert 0.1 < low <= high < 0.8
    for _ in range(3):
        model(torch.randn(4, 3, 16, 16)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        macs = grower.step()["macs_frac"]
    assert method == "paper" or low - 0.01 <= macs <= high + 0.01
