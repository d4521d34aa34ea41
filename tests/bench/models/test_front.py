"""The front of the models: every network is a function of its own name, and none hides a module."""

from __future__ import annotations

import inspect
import pkgutil
from typing import Any

import pytest
import torch
from torch import nn

import meristem_bench.models as models
from meristem_bench.models import (
    deeplab_v3_resnet101,
    lstm_lm,
    mobilenet_v1,
    resnet20,
    resnet50,
    vgg16,
    wrn28_10,
)
from meristem_bench.models.lstm import lstm_large, lstm_medium, lstm_small

PUBLISHED = (deeplab_v3_resnet101, lstm_lm, mobilenet_v1, resnet20, resnet50, vgg16, wrn28_10)


@pytest.mark.parametrize("make", PUBLISHED, ids=lambda make: make.__name__)
def test_a_network_is_built_without_arguments(make: Any) -> None:
    with torch.device("meta"):
        assert isinstance(make(), nn.Module)


def test_every_name_is_a_function_that_takes_the_number_of_classes() -> None:
    for name in models.__all__:
        assert "classes" in inspect.signature(getattr(models, name)).parameters, name


def test_no_function_hides_a_module() -> None:
    modules = {module.name for module in pkgutil.iter_modules(models.__path__)}
    assert not modules & set(models.__all__)


@pytest.mark.parametrize(("size", "make"), [("small", lstm_small), ("medium", lstm_medium), ("large", lstm_large)])
def test_a_published_size_is_the_model_of_that_name(size: Any, make: Any) -> None:
    torch.manual_seed(0)
    by_size = lstm_lm(size, classes=20)
    torch.manual_seed(0)
    by_name = make(classes=20)
    assert by_size.dropout.p == by_name.dropout.p
    ours, theirs = by_size.state_dict(), by_name.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_keep_replaces_the_published_share() -> None:
    assert lstm_lm("small", classes=20, keep=0.75).dropout.p == 0.25


def test_an_unknown_size_is_named() -> None:
    unknown: Any = "huge"
    with pytest.raises(ValueError, match=r"^size must be one of small, medium, large, got 'huge'$"):
        lstm_lm(unknown)
