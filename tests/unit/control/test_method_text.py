"""A method as text: a preset, some of its numbers changed, and one sentence for what cannot be."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from meristem.control.method import autogrow, default, iss, named_methods, paper, search
from meristem.control.method_text import named_method, numbers
from meristem.control.rivals.autogrow import AutoGrow
from meristem.control.rivals.iss import Lasso
from meristem.errors import MeristemError


@pytest.mark.parametrize("name", named_methods())
def test_a_name_alone_is_the_preset(name: str) -> None:
    assert named_method(name) == named_methods()[name]()


def test_numbers_are_changed_where_they_belong() -> None:
    schedule = default().schedule
    assert named_method("default:peak=2.5") == replace(default(), schedule=replace(schedule, peak=2.5))
    assert named_method("search: start = 0 :freeze=0.8") == replace(
        search(), schedule=replace(schedule, start=0.0), freeze=0.8
    )
    assert named_method("iss:strength=0.02:threshold=1e-3") == iss(Lasso(0.02, 1e-3))
    assert named_method("autogrow:every=2:threshold=0.1").controller == AutoGrow(every=2, threshold=0.1)
    assert named_method("default:peak=inf").schedule.peak == math.inf


def test_whatever_can_be_changed_can_be_said() -> None:
    for name, make in named_methods().items():
        text = ":".join([name, *(f"{key}={value}" for key, value in numbers(make()).items())])
        assert named_method(text) == make(), text
    assert "peak" not in numbers(paper()), "nothing follows it"
    assert set(numbers(autogrow())) == {"freeze", "opening", "every", "patience", "threshold"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("defualt", "there is no method 'defualt'; did you mean default? There are: dense, default, search"),
        (
            "default:peek=2",
            "the method default has no 'peek' to be changed; did you mean peak? There are: freeze, opening, memory",
        ),
        ("uniform:peak=2", "the method uniform has no 'peak' to be changed; There are: freeze"),
        ("default:peak", "the method 'default:peak' is not of the form NAME:KEY=VALUE, e.g. default:peak=2.5"),
        ("default:", "the method 'default:' is not of the form NAME:KEY=VALUE"),
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
        ("iss:strength=-1", "the strength of a lasso must be a number of at least 0, got -1.0"),
        ("dense:peak=2", "the method dense has no numbers to be changed, got 'dense:peak=2'"),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(text: str, message: str) -> None:
    with pytest.raises(MeristemError) as told:
        named_method(text, besides=("dense",))
    assert message in str(told.value)
    assert "\n" not in str(told.value)
