"""Law 8, over time. A run whose network is resized on the way is the masked run of the full-size network.

The masked run keeps every tensor at its full size. The units that are not live take no part: their gradients are zero,
and after every step of the optimizer their weights and their state are put back, so that nothing decays while they are
away. When units come that have never lived, the masked run gives them what they are to start with: the initial weights,
first moments of zero, second moments that are the mean over the positions that were live. Everything else goes on.

What an optimizer computes element by element is then the same to rounding. Adafactor computes means, over rows and
columns and for the length of its steps: the masked run takes them over the live positions. Muon orthogonalises a
momentum: one with zero rows and columns becomes the orthogonalised rest between zeros, and the masked run only adjusts
the learning rate to the live shape. In double precision that holds to rounding; torch computes it in bfloat16, which
puts an update of a matrix this small off by up to a tenth, and the same holds for the resized one.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn, optim

import meristem
from helpers import assert_near, go, half, live_part, loss, whole
from masked_run import COPIES, INPUTS, SCALES, MaskedRun, Parameters, net, targets
from meristem import Live, Space
from meristem.rules import OptimizerRule, StateKind

OPTIMIZERS: dict[str, Callable[[Parameters], optim.Optimizer]] = {
    "sgd_nesterov": lambda params: optim.SGD(params, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "sgd_fused": lambda params: optim.SGD(params, lr=0.05, momentum=0.9, fused=True),
    "adam_amsgrad": lambda params: optim.Adam(params, lr=1e-2, amsgrad=True, weight_decay=1e-3),
    "adam_foreach": lambda params: optim.Adam(params, lr=1e-2, foreach=True),
    "adamw_fused": lambda params: optim.AdamW(params, lr=1e-2, fused=True, weight_decay=0.1),
    "rmsprop_centered": lambda params: optim.RMSprop(params, lr=1e-3, momentum=0.9, centered=True),
    "adagrad": lambda params: optim.Adagrad(params, lr=1e-2, initial_accumulator_value=0.1),
    "adagrad_fused": lambda params: optim.Adagrad(params, lr=1e-2, fused=True),
    "adadelta": lambda params: optim.Adadelta(params, lr=0.5),
    "adamax": lambda params: optim.Adamax(params, lr=1e-2),
    "nadam": lambda params: optim.NAdam(params, lr=1e-2),
    "nadam_decoupled": lambda params: optim.NAdam(params, lr=1e-2, weight_decay=0.1, decoupled_weight_decay=True),
    "radam": lambda params: optim.RAdam(params, lr=1e-2, foreach=True),
    "asgd": lambda params: optim.ASGD(params, lr=1e-2, t0=2),
    "rprop": lambda params: optim.Rprop(params, lr=1e-3),
    "lion": lambda params: lion()(params, lr=1e-3, weight_decay=0.1),
}
FACTORS = {"row_var": -1, "col_var": -2}


def lion() -> Any:
    return pytest.importorskip("lion_pytorch", reason="lion-pytorch is not installed").Lion


@pytest.fixture(scope="module")
def space() -> Space:
    space = meristem.trace(net(), *INPUTS)
    assert sum(group.units for group in space.groups.values()) == 22
    return space


def run_beside(live: Live, masked: Any, space: Space, tolerance: float) -> None:
    """Both runs, and their comparison after every step: weights and state."""
    for target in [None, *targets(space)]:
        if target is not None:
            go(live, target)
            masked.resize(live)
        for _ in range(3):
            live.model.zero_grad()
            loss([live.model(*INPUTS)]).backward()
            live.optimizer.step()
            masked.step()
            for name, tensors in masked.tensors().items():
                state = live.optimizer.state[live.model.get_parameter(name)]
                for key, expected in tensors.items():
                    got = state[key] if key else live.model.get_parameter(name).detach()
                    assert_near(got, factor_part(expected, space, name, live, key), tolerance, f"{key} of {name}")


def factor_part(full: Tensor, space: Space, name: str, live: Live, key: str) -> Tensor:
    """The live positions of a tensor whose dimension that is averaged over has a single one."""
    if key not in FACTORS:
        return live_part(full, space, name, live)
    at = [live.positions(axis) for axis in space.axes(name)]
    at[FACTORS[key]] = np.zeros(1, dtype=np.int64)
    return full[np.ix_(*at)]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_resized_run_is_the_masked_one(kind: str, space: Space) -> None:
    model = net()
    live = Live(model, space, OPTIMIZERS[kind](model.parameters()), start=half(space))
    run_beside(live, MaskedRun(space, OPTIMIZERS[kind], live), space, 1e-9)


# --- factored state -------------------------------------------------------------------------------------------------


class MaskedAdafactor(MaskedRun):
    """Adafactor as its paper has it, every mean taken over live positions.

    What a column keeps counts relative to the mean over the rows: that is what stays where it is when rows change.
    """

    LR, D, EPS1, EPS2, DECAY, WEIGHT_DECAY = 1e-2, 1.0, torch.finfo(torch.float64).eps, 1e-3, -0.8, 0.1

    def __init__(self, space: Space, live: Live) -> None:
        super().__init__(space, lambda params: optim.SGD(params, lr=0.0), live)
        self.steps, self.kept = 0, dict[str, dict[str, Tensor]]()

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        return {name: {"": each.data} | self.kept.get(name, {}) for name, each in self.model.named_parameters()}

    def step(self) -> None:
        self.steps += 1
        beta = self.steps**self.DECAY
        for name, gradient in self.gradients().items():
            weight, alive = self.model.get_parameter(name).data, self.alive[name]
            rho = min(self.LR, self.steps**-0.5)
            alpha = max(self.EPS2, float(weight[alive].square().mean().sqrt())) * rho
            weight[alive] *= 1 - self.LR * self.WEIGHT_DECAY
            update = torch.where(alive, gradient * self.estimate(name, gradient, beta).clamp(self.EPS1**2).rsqrt(), 0.0)
            length = float((update.square().sum() / alive.sum()).sqrt())
            weight -= alpha / max(1.0, length / self.D) * update

    def estimate(self, name: str, gradient: Tensor, beta: float) -> Tensor:
        alive, squares = self.alive[name], gradient.square()
        if gradient.dim() < 2:
            kept = self.kept.setdefault(name, {"variance": torch.zeros_like(squares)})
            kept["variance"] = torch.where(alive, kept["variance"].lerp(squares, beta), kept["variance"])
            return kept["variance"]
        means = {key: live_mean(squares, alive, dim) for key, dim in FACTORS.items()}
        kept = self.kept.setdefault(name, {key: torch.zeros_like(mean) for key, mean in means.items()})
        for key, dim in FACTORS.items():
            kept[key] = torch.where(alive.any(dim, keepdim=True), kept[key].lerp(means[key], beta), kept[key])
        return kept["row_var"] * kept["col_var"] / self.mean_of_rows(name, alive)

    def mean_of_rows(self, name: str, alive: Tensor) -> Tensor:
        mean = live_mean(self.kept[name]["row_var"], alive.any(-1, keepdim=True), -2)
        return torch.where(mean > 0, mean, 1.0)

    def resize(self, live: Live) -> None:
        alive = self.positions(live)
        for name, kept in self.kept.items():
            before, now = self.alive[name], alive[name]
            if "variance" in kept:
                kept["variance"][now & ~self.lived[name]] = kept["variance"][before].mean()
                continue
            relative = kept["col_var"] / self.mean_of_rows(name, before)
            kept["col_var"] = torch.where(before.any(-2, keepdim=True), relative, kept["col_var"])
            for key, dim in FACTORS.items():
                fresh = now.any(dim, keepdim=True) & ~self.lived[name].any(dim, keepdim=True)
                kept[key][fresh] = kept[key][before.any(dim, keepdim=True)].mean()
            absolute = kept["col_var"] * self.mean_of_rows(name, now)
            kept["col_var"] = torch.where(now.any(-2, keepdim=True), absolute, kept["col_var"])
        for name, now in alive.items():
            self.lived[name] |= now
        self.alive, self.masks = alive, live.masks


def live_mean(values: Tensor, alive: Tensor, dim: int) -> Tensor:
    total = torch.where(alive, values, 0.0).sum(dim, keepdim=True)
    return total / alive.sum(dim, keepdim=True).clamp(min=1)


def torch_adafactor(params: Parameters) -> optim.Optimizer:
    return optim.Adafactor(params, lr=1e-2, weight_decay=0.1)


def hugging_face_adafactor(params: Parameters) -> optim.Optimizer:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    return transformers.optimization.Adafactor(params, lr=1e-2, relative_step=False, scale_parameter=False)


def test_adafactor(space: Space) -> None:
    model = net()
    live = Live(model, space, torch_adafactor(model.parameters()), start=half(space))
    run_beside(live, MaskedAdafactor(space, live), space, 1e-9)


def estimates(live: Live) -> dict[str, Tensor]:
    """What a factored state says about every weight."""
    found = {}
    for name, parameter in live.model.named_parameters():
        state = live.optimizer.state[parameter]
        if "row_var" in state:
            found[name] = state["row_var"] * state["col_var"] / state["row_var"].mean(-2, keepdim=True)
        elif "exp_avg_sq_row" in state:
            row, column = state["exp_avg_sq_row"], state["exp_avg_sq_col"]
            found[name] = (row / row.mean(-1, keepdim=True)).unsqueeze(-1) * column.unsqueeze(-2)
    assert len(found) == 4
    return found


@pytest.mark.parametrize("kind", [torch_adafactor, hugging_face_adafactor])
def test_a_factored_estimate_stays_what_it_was(kind: Callable[[Parameters], optim.Optimizer], space: Space) -> None:
    """For the weights that stay, whatever rows and columns come or go; what goes and returns has what it had."""
    model = net()
    live = Live(model, space, kind(model.parameters()), start=half(space))

    def train() -> None:
        for _ in range(3):
            model.zero_grad()
            loss([model(*INPUTS)]).backward()
            live.optimizer.step()

    train()
    first, small = estimates(live), live.masks
    go(live, whole(space))
    for name, estimate in estimates(live).items():
        inside = [np.flatnonzero(np.isin(live.positions(axis), at)) for axis, at in places(space, name, small)]
        assert_near(estimate[np.ix_(*inside)], first[name], 1e-9, name)
        assert torch.isfinite(estimate).all()
        assert (estimate > 0).all(), name
    train()
    full = estimates(live)
    for target in targets(space):
        go(live, target)
        for name, estimate in estimates(live).items():
            assert_near(estimate, live_part(full[name], space, name, live), 1e-9, name)
    train()
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


def places(space: Space, name: str, masks: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    return [(axis, np.flatnonzero(axis.live(masks))) for axis in space.axes(name)]


# --- orthogonalised momentum ----------------------------------------------------------------------------------------


def orthogonalised(matrix: Tensor) -> Tensor:
    """Five Newton-Schulz steps with Muon's numbers, in double precision."""
    a, b, c = 3.4445, -4.7750, 2.0315
    matrix = matrix / matrix.norm()
    for _ in range(5):
        gram = matrix @ matrix.T
        matrix = a * matrix + (b * gram + c * gram @ gram) @ matrix
    return matrix


def muon_and_adamw(model: nn.Module) -> list[optim.Optimizer]:
    if not hasattr(optim, "Muon"):
        pytest.skip("this torch has no Muon")
    matrices = [parameter for parameter in model.parameters() if parameter.dim() == 2]
    others = [parameter for parameter in model.parameters() if parameter.dim() != 2]
    return [optim.Muon(matrices, lr=0.02), optim.AdamW(others, lr=1e-2)]


def test_muon(space: Space) -> None:
    """The momentum is that of the masked run exactly, the update to the precision in which torch computes it."""
    model = net()
    live = Live(model, space, muon_and_adamw(model), start=half(space))
    momentum, matrices = {}, [name for name, parameter in model.named_parameters() if parameter.dim() == 2]
    for target in [half(space), *targets(space)]:
        go(live, target)
        for _ in range(3):
            model.zero_grad()
            loss([model(*INPUTS)]).backward()
            before = {name: model.get_parameter(name).detach().clone() for name in matrices}
            for optimizer in live.optimizers.all:
                optimizer.step()
            for name in matrices:
                parameter = model.get_parameter(name)
                at = np.ix_(*[live.positions(axis) for axis in space.axes(name)])
                full = momentum.setdefault(name, torch.zeros(space.tensors[name].shape, dtype=torch.float64))
                full[at] = full[at].lerp(parameter.grad, 0.05)  # what is not live keeps its momentum
                masked, gradient = torch.zeros_like(full), torch.zeros_like(full)
                masked[at], gradient[at] = full[at], parameter.grad
                update = orthogonalised(gradient.lerp(masked, 0.95))
                assert_near(live.optimizer.state[parameter]["momentum_buffer"], full[at], 1e-12, name)
                outside = torch.ones(full.shape, dtype=torch.bool)
                outside[at] = False
                assert not update[outside].any()
                assert_near(orthogonalised(gradient.lerp(masked, 0.95)[at]), update[at], 1e-9, f"middle of {name}")
                rate = 0.02 * max(1, parameter.shape[0] / parameter.shape[1]) ** 0.5  # of the live shape
                taken = (before[name] * (1 - 0.02 * 0.1) - parameter.detach()) / rate
                assert_near(taken, update[at], 0.25, f"update of {name}")  # bfloat16 costs as much on any small matrix


def test_two_optimizers_share_a_model(space: Space) -> None:
    """A run with two optimizers is the run with one of two param groups, to the last bit: plan, weights, records."""
    runs = []
    for several in (False, True):
        model = net()
        parts = [{"params": [each for each in model.parameters() if (each.dim() < 2) == few]} for few in (True, False)]
        made = [optim.SGD([part], lr=0.05, momentum=0.9) for part in parts] if several else []
        given = made or optim.SGD(parts, lr=0.05, momentum=0.9)
        grower = meristem.Grower(model, given, space=space, budget="60%", epochs=5, method="gates:peak=1.2")
        for _ in range(5):
            for _ in range(3):
                model.zero_grad()
                loss([model(*INPUTS)]).backward()
                for optimizer in made or [given]:
                    optimizer.step()
            grower.step()
        runs.append((model, grower))
    (one, by_one), (two, by_two) = runs
    assert by_one.widths == by_two.widths
    assert [record["steps"] for record in by_two.records] == [3, 3, 3, 3, 3]
    for (name, expected), got in zip(one.named_parameters(), two.parameters(), strict=True):
        assert torch.equal(got, expected), name


def test_two_optimizers_resume(space: Space, tmp_path: Any) -> None:
    def start() -> tuple[nn.Module, list[optim.Optimizer], meristem.Grower]:
        model = net()
        made = muon_and_adamw(model)
        return model, made, meristem.Grower(model, made, space=space, budget="60%", epochs=4)

    def train(model: nn.Module, made: list[optim.Optimizer], grower: meristem.Grower, epochs: int) -> list[float]:
        losses = []
        for _ in range(epochs):
            for _ in range(2):
                model.zero_grad()
                value = loss([model(*INPUTS)])
                value.backward()
                for optimizer in made:
                    optimizer.step()
                losses.append(float(value.detach()))
            grower.step()
        return losses

    run = start()
    train(*run, 2)
    run[2].checkpoint(tmp_path / "run")
    expected = train(*run, 2)
    again = start()
    again[2].resume(tmp_path / "run")
    assert train(*again, 2) == expected
    assert again[2].widths == run[2].widths


def test_parameters_in_two_optimizers(space: Space) -> None:
    model = net()
    twice = [optim.SGD(model.parameters(), lr=0.1), optim.SGD(model[0].parameters(), lr=0.1)]
    with pytest.raises(meristem.MeristemError, match="2 parameters are in two optimizers at once; give each to one"):
        meristem.Grower(model, twice, space=space, budget="60%", epochs=4)
    with pytest.raises(meristem.MeristemError, match=r"optimizer must be a torch optimizer .*, got str"):
        meristem.Grower(model, [twice[0], "adam"], space=space, budget="60%", epochs=4)


# --- optimizers of one's own ----------------------------------------------------------------------------------------


class Own(optim.Optimizer):
    """A momentum, a scale, a slow copy of the weights, a counter, and if asked for something nobody knows."""

    def __init__(self, params: Parameters, lr: float = 0.05, more: bool = False) -> None:
        super().__init__(params, {"lr": lr})
        self.more = more

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state.update(fast=torch.zeros_like(parameter), scale=torch.zeros_like(parameter))
                    state.update(slow=parameter.clone(), count=0, table=torch.arange(7.0))
                    if self.more:
                        state["odd"] = torch.zeros(5)
                state["count"] += 1
                state["fast"].lerp_(parameter.grad, 0.2)
                state["scale"].lerp_(parameter.grad.square(), 0.2)
                parameter.sub_(group["lr"] * state["fast"] / (state["scale"].sqrt() + 1e-3))
                state["slow"].lerp_(parameter, 0.1)
                parameter.lerp_(state["slow"], 0.05)


OWN = OptimizerRule(
    Own,
    {
        "fast": StateKind.FIRST_MOMENT,
        "scale": StateKind.SECOND_MOMENT,
        "slow": StateKind.WEIGHTS,
        "table": StateKind.SCALAR,
    },
)


def test_an_optimizer_of_ones_own(space: Space) -> None:
    model = net()
    with pytest.raises(meristem.MeristemError, match=r"the state of Own is not understood.*OptimizerRule\(Own, {"):
        meristem.Grower(model, Own(model.parameters()), space=space, budget="60%", epochs=4)
    live = Live(model, space, Own(model.parameters()), start=half(space), rules=[OWN])
    run_beside(live, MaskedRun(space, Own, live, SCALES | {"scale"}, COPIES | {"slow"}), space, 1e-9)
    for parameter in model.parameters():
        assert live.optimizer.state[parameter]["count"] == 15
        assert len(live.optimizer.state[parameter]["table"]) == 7


def test_what_a_rule_does_not_name(space: Space) -> None:
    """It is refused before anything changes, and so is an entry that has not the shape of its kind."""
    wrong = OptimizerRule(Own, {**OWN.state, "table": StateKind.FIRST_MOMENT})
    for rule, more, message in (
        (OWN, True, r"for 0.weight Own keeps 'odd', which the rule for this optimizer does not name"),
        (
            wrong,
            False,
            r"Own keeps 'table' of the shape \(7,\), which is not that of a first moment of .* \(\d, 3, 3\)",
        ),
    ):
        model = net()
        made = Own(model.parameters(), more=more)
        grower = meristem.Grower(model, made, space=space, budget="60%", epochs=4, rules=[rule])
        loss([model(*INPUTS)]).backward()
        made.step()
        before, widths = copy.deepcopy(model.state_dict()), grower.widths
        with pytest.raises(meristem.MeristemError, match=message):
            grower.step()
        assert grower.widths == widths
        assert grower.epoch == 0
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_rules_are_rules(space: Space) -> None:
    model = net()
    with pytest.raises(meristem.MeristemError, match="rules must be a list of LayerRule, OpRule and OptimizerRule"):
        meristem.Grower(model, Own(model.parameters()), space=space, budget="60%", epochs=4, rules=[Own])


def test_a_rule_by_name() -> None:
    rule = OptimizerRule(f"{__name__}.Own", {})
    assert rule.name == "Own"
    assert rule.fits(Own)
    assert OptimizerRule("Own", {}).fits(Own)
    assert not OptimizerRule("Own", {}).fits(optim.SGD)
    assert not OptimizerRule(optim.Adam, {}).fits(optim.AdamW)


def test_known_classes_exist() -> None:
    """Those that are known by where they are: a torch or a package that moves them is noticed here."""
    from meristem.surgery.optimizer_rules import OPTIMIZER_RULES

    for rule in OPTIMIZER_RULES:
        if isinstance(rule.optimizer, str) and rule.optimizer.startswith("torch."):
            module, _, name = rule.optimizer.rpartition(".")
            assert rule.fits(getattr(importlib.import_module(module), name))
