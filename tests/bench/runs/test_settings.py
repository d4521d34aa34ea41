"""Settings: their flat names, and that annotations alone say what a setting may be."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from meristem import Budget
from meristem.errors import MeristemError
from meristem_bench.recipes.digits import digits
from meristem_bench.runs import FineTuning, GrowthConfig, OptimizerConfig, Run
from meristem_bench.runs.lr_schedule import Constant, Cosine, LrSchedule, Steps
from meristem_bench.runs.settings import (
    Count,
    Fixed,
    Named,
    Share,
    at_most,
    check_settings,
    defaults_as_json,
    parse_settings,
    replace_fields,
    settings_as_json,
    settings_of,
)


@dataclass(frozen=True)
class Inner:
    share: Share = 0.5
    schedule: Annotated[LrSchedule | None, Named("inner_rate")] = None
    hook: Fixed[Any] = None

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class Outer:
    title: Fixed[str]
    count: Annotated[Count, at_most(9)]
    flag: bool = False
    text: str = "a"
    budget: Budget = Budget(params="36%")
    inner: Inner = Inner()

    def __post_init__(self) -> None:
        check_settings(self)


OUTER = Outer("t", 3)


def test_the_names_of_a_run_are_those_that_users_and_files_know() -> None:
    """A file of an earlier version says them, and so do command lines: none goes away."""
    assert set(settings_of(Run)) == {
        *("epochs", "batch", "seed", "lr", "rate", "warmup", "momentum", "nesterov", "weight_decay", "clip"),
        *("optimizer_kind", "fused", "label_smoothing", "mixup", "ema", "tf32"),
        *("fine_tune", "fine_tune_lr", "fine_tune_rate", "keep", "keep_dense"),
        *("budget", "method", "widths", "cost_of", "pretrained", "pin", "depth"),
        *("data_dir", "classes", "held_out", "samples", "size", "workers", "unroll", "context"),
        *("device", "threads", "processes", "bf16", "channels_last", "compile"),
    }


def test_what_is_fixed_is_no_setting_and_what_lies_within_is_one() -> None:
    assert list(settings_of(Outer)) == ["count", "flag", "text", "budget", "share", "inner_rate"]
    assert settings_of(Outer)["inner_rate"].path == ("inner", "schedule")
    others = {"text": "a", "budget": "params=36%", "share": 0.5, "inner_rate": None}
    assert defaults_as_json(Outer) == {"flag": False, **others}


def test_the_way_through_json_and_text_and_back() -> None:
    changes = {"count": 7, "flag": True, "budget": Budget(macs=100), "share": 1 / 3, "inner_rate": Steps(10, (1 / 3,))}
    other = replace_fields(OUTER, changes)
    for read in (settings_as_json(other), {name: str(value) for name, value in settings_as_json(other).items()}):
        again = replace_fields(OUTER, parse_settings(Outer, read))
        assert settings_as_json(again) == settings_as_json(other)
    assert parse_settings(Outer, {"inner_rate": None}) == {"inner_rate": None}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("count", True, r"count must be a whole number, got True \(bool\)"),
        ("count", 3.0, r"count must be a whole number, got 3.0 \(float\)"),
        ("count", None, r"count must be a whole number, got None \(NoneType\)"),
        ("count", -1, "count must be a number of at least 0, got -1"),
        ("count", 10, "count must be at most 9, got 10"),
        ("flag", 1, r"flag must be yes or no, got 1 \(int\)"),
        ("text", 1, r"text must be text, got 1 \(int\)"),
        ("budget", "36%", r"budget must be a Budget, got '36%' \(str\)"),
        ("share", 1.5, "share must be a share of at most 1, got 1.5"),
        ("share", float("nan"), "share must be a number of at least 0, got nan"),
        ("inner_rate", "cosine", r"inner_rate must be a learning-rate schedule, got 'cosine' \(str\)"),
    ],
)
def test_a_value_of_another_type_or_beyond_a_limit(name: str, value: Any, message: str) -> None:
    with pytest.raises(MeristemError, match=message):
        replace_fields(OUTER, {name: value})


def test_values_are_replaced_by_flat_names_by_fixed_ones_and_by_whole_parts() -> None:
    tuned = digits().replace(name="x", fine_tune=3, fine_tune_lr=0.2, decays=len, rate=Constant())
    assert tuned.fine_tuning == FineTuning(3, 0.2)
    assert (tuned.name, tuned.optimizer.decays, tuned.optimizer.schedule) == ("x", len, Constant())
    assert tuned.epochs == digits().epochs
    whole = digits().replace(optimizer=OptimizerConfig(0.3), momentum=0.5, growth=GrowthConfig(depth=True))
    assert whole.optimizer == OptimizerConfig(0.3, Cosine(), momentum=0.5)
    assert whole.growth.depth
    with pytest.raises(TypeError, match="no_such_field"):
        digits().replace(no_such_field=1)


def test_a_part_checks_itself_and_the_run_what_parts_must_agree_on() -> None:
    with pytest.raises(MeristemError, match="nesterov needs a momentum, but momentum is 0"):
        OptimizerConfig(0.1, momentum=0.0, nesterov=True)
    with pytest.raises(MeristemError, match=r"fine_tune_lr=0\.1 needs an lr that is not 0"):
        digits().replace(lr=0.0, fine_tune=1, fine_tune_lr=0.1)
    with pytest.raises(MeristemError, match="there is no method 'x'"):
        GrowthConfig(method="x")
    assert dataclasses.replace(digits(), epochs=1).epochs == 1
