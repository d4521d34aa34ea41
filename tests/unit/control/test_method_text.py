"""A method as text: a preset, some of its numbers changed, and one sentence for what cannot be."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from meristem.control.method_text import method_settings
from meristem.control.penalty import PlainSum
from meristem.control.proportions import Proportions
from meristem.control.rivals.autogrow import AutoGrow
from meristem.control.rivals.iss import Lasso
from meristem.control.scores import WeightNorms
from meristem.control.temperature import Global
from meristem.errors import MeristemError
from meristem.gating.interfaces import WeightsOf
from meristem.gating.kinds import Concrete, GatePlacement
from meristem.methods import METHODS, autogrow, balanced, default, dense, iss, paper, parse_method, search, uniform
from meristem.surgery.fresh import VarianceTransfer


@pytest.mark.parametrize("name", METHODS)
def test_a_name_alone_is_the_preset(name: str) -> None:
    assert parse_method(name) == METHODS[name]()


def test_numbers_are_changed_where_they_belong() -> None:
    schedule = default().schedule
    assert parse_method("default:peak=2.5") == replace(default(), schedule=replace(schedule, peak=2.5))
    assert parse_method("search: start = 0 :freeze=0.8") == replace(
        search(), schedule=replace(schedule, start=0.0), freeze=0.8
    )
    assert parse_method("iss:strength=0.02:threshold=1e-3") == iss(Lasso(0.02, 1e-3))
    assert parse_method("autogrow:every=2:threshold=0.1").controller == AutoGrow(every=2, threshold=0.1)
    assert parse_method("default:peak=inf").schedule.peak == math.inf
    assert parse_method("default:stairs=0.2@0+1@0.6").schedule.stairs == ((0.0, 0.2), (0.6, 1.0))
    assert parse_method("balanced:balance=0.5") == replace(balanced(), proportions=Proportions(0.5))


def test_whatever_can_be_changed_can_be_said() -> None:
    for name, make in METHODS.items():
        text = ":".join([name, *(f"{key}={value}" for key, value in method_settings(make()).items())])
        assert parse_method(text) == make(), text
    assert "peak" not in method_settings(paper()), "nothing follows it"
    assert set(method_settings(autogrow())) == {
        *("placement", "fresh", "freeze", "opening", "metric", "every", "patience", "threshold")
    }
    assert not method_settings(uniform()), "nothing grows"
    assert not method_settings(dense())


def test_choices_are_reached_by_their_names() -> None:
    method = parse_method("paper:temperature=global:gate=gumbel:placement=filter:penalty=sum:base=1")
    assert (method.temperature, method.gate, method.placement) == (Global(), Concrete(), GatePlacement.FILTER)
    assert method.scores == replace(paper().scores, penalty=PlainSum())
    assert method.controller == replace(paper().controller, base=1.0)
    assert parse_method("paper:temperature=global:final=50").temperature == Global(final=50.0)
    assert parse_method("default:fresh=variance-transfer").fresh == VarianceTransfer()
    assert parse_method("iss:compact=no") == iss(compact=False)
    assert parse_method("autogrow:metric=val_perplexity").controller == AutoGrow(metric="val_perplexity")
    assert parse_method("l1:p=2:of=all").scores == WeightNorms(p=2.0, of=WeightsOf.UNIT)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("defualt", "there is no method 'defualt'; did you mean default? There are: default, search"),
        (
            "default:peek=2",
            "the method default has no 'peek' to be changed; did you mean peak? There are: placement, fresh, freeze",
        ),
        ("uniform:peak=2", "the method uniform has no numbers or choices to be changed, got peak=2"),
        ("default:peak", "'peak' is not of the form KEY=VALUE, e.g. default:peak=2.5"),
        ("default:", "'' is not of the form KEY=VALUE, e.g. default:peak=2.5"),
        ("default:peak=high", "peak of the method default must be a number, got 'high'"),
        ("default:peak=nan", "peak of the method default must be a number, got 'nan'"),
        ("default:peak=-1", "the peak of a schedule must be a number of at least 0, got -1.0"),
        ("default:land_at=2", "land_at of a schedule must be a share of the run, got 2.0"),
        ("default:freeze=2", "freeze must be a share of the run, got 2.0"),
        ("default:memory=1", "memory must be a share of less than 1, got 1.0"),
        ("default:grace_epochs=-1", "grace_epochs must be a number of epochs, at least 0, got -1"),
        ("default:grace_epochs=.5", "grace_epochs of the method default must be a whole number, got '.5'"),
        ("default:align=0", "align must be a width, from 1 to 1048576, got 0"),
        ("autogrow:every=1.5", "every of the method autogrow must be a whole number, got '1.5'"),
        ("autogrow:every=0", "every must be a number of epochs of at least 1, got 0"),
        ("autogrow:patience=3", "patience must be a share of the run"),
        ("paper:temperature=cold", "temperature of the method paper must be one of unit, global, decayed, got 'cold'"),
        ("default:temperature=global", "the method default has no 'temperature' to be changed"),
        ("iss:strength=-1", "the strength of a lasso must be a number of at least 0, got -1.0"),
        ("dense:peak=2", "the method dense has no numbers or choices to be changed, got peak=2"),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(text: str, message: str) -> None:
    with pytest.raises(MeristemError) as told:
        parse_method(text)
    assert message in str(told.value)
    assert "\n" not in str(told.value)
