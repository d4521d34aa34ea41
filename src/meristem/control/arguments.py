"""The arguments of a grower, checked before anything is changed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn, optim

from meristem.control.budget import Budget
from meristem.control.method import Method
from meristem.errors import BudgetError, MeristemError
from meristem.space.space import Space


def plain(model: nn.Module) -> nn.Module:
    """The user's own module inside torch.compile's or a data-parallel wrapper."""
    for name in ("_orig_mod", "module"):
        inner = model._modules.get(name)
        if inner is not None and type(model).__name__ in ("OptimizedModule", "DataParallel", "DistributedDataParallel"):
            return plain(inner)
    return model


def check_arguments(model: Any, optimizer: Any, budget: Any, method: Any, space: Any) -> None:
    """Refuse what is of the wrong type or does not go together."""
    expected: dict[str, tuple[Any, Any, str]] = {
        "model": (model, nn.Module, "an nn.Module"),
        "optimizer": (optimizer, optim.Optimizer, "a torch optimizer made from the model's parameters"),
        "budget": (budget, Budget, "a Budget, e.g. meristem.Budget(params='36%')"),
        "method": (method, Method, "a Method, e.g. meristem.methods()['paper']()"),
        "space": (space, (Space, type(None)), "what meristem.trace returns"),
    }
    for name, (value, kind, text) in expected.items():
        if not isinstance(value, kind):
            raise MeristemError(f"{name} must be {text}, got {type(value).__name__}")
    if budget.spend is not None and not method.controller.follows_plan:
        kind = type(method.controller).__name__
        raise BudgetError(f"a spend budget needs a controller that follows a plan, which {kind} does not; use Exact")


def check_numbers(epochs: Any, seed: Any, batch_size: Any) -> None:
    for name, value, least in (("epochs", epochs, 1), ("seed", seed, 0), ("batch_size", batch_size, 1)):
        if name == "batch_size" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise MeristemError(f"{name} must be a whole number of at least {least}, got {value!r}")


def samples_of_a_step(example_inputs: Any, batch_size: int | None) -> float:
    """How many times the example inputs' samples one step sees."""
    if batch_size is None:
        return 1.0
    first = example_inputs[0] if isinstance(example_inputs, (tuple, list)) and example_inputs else example_inputs
    if not isinstance(first, torch.Tensor) or not first.dim():
        raise MeristemError(
            "batch_size needs example_inputs whose first entry is a tensor of samples, to know what one sample costs"
        )
    return batch_size / first.shape[0]
