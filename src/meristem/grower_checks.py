"""The arguments of a grower, checked before anything is changed."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

import torch
from torch import nn, optim

from meristem.control.budget import Budget
from meristem.control.method import Method
from meristem.cost.price import Prices
from meristem.distributed.agreement import from_rank_0, is_distributed
from meristem.errors import BudgetError, FileError, MeristemError
from meristem.gating.gating import Gating
from meristem.gating.reader_patches import groups_without_readers
from meristem.growth import Helpers, Samples
from meristem.methods import default, parse_method
from meristem.rules import LayerRule, OpRule, OptimizerRule, Rule
from meristem.space.held_tensors import held_tensors
from meristem.space.space import Space
from meristem.surgery.optimizer import Optimizers
from meristem.surgery.resized_parameter import is_resized
from meristem.surgery.sharding import check_can_shard
from meristem.tracing.counted_outputs import as_choice
from meristem.tracing.model_copy import tensor_at
from meristem.tracing.refused_models import check_whole
from meristem.tracing.trace import trace

AnyRule = Rule | OptimizerRule


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's own module inside torch.compile's or a data-parallel wrapper."""
    for name in ("_orig_mod", "module"):
        inner = model._modules.get(name)
        if inner is not None and type(model).__name__ in ("OptimizedModule", "DataParallel", "DistributedDataParallel"):
            return unwrapped(inner)
    return model


def as_method(method: Method | str | None) -> Method:
    """The method that was given as an object or as text; the default if none was."""
    if method is None:
        return default()
    return parse_method(method) if isinstance(method, str) else method


def as_budget(budget: Budget | str | None, method: Method) -> Budget:
    """The budget that was given as an object or as text; the full model for a method that ignores it."""
    if getattr(method, "ignores_budget", False):  # what is no method is refused later
        return Budget(params="100%")
    if budget is None:
        raise BudgetError("a grower needs a budget, e.g. budget='36%' of the parameters or Budget(macs='50%')")
    return Budget.parse(budget) if isinstance(budget, str) else budget


def check_arguments(model: Any, optimizer: Any, budget: Any, method: Any, space: Any) -> None:
    """Refuse what is of the wrong type or does not go together."""
    if isinstance(optimizer, (list, tuple)) and optimizer:  # of several, the first that is none
        optimizer = min(optimizer, key=lambda each: isinstance(each, optim.Optimizer))
    expected: dict[str, tuple[Any, Any, str]] = {
        "model": (model, nn.Module, "an nn.Module"),
        "optimizer": (optimizer, optim.Optimizer, "a torch optimizer made from the model's parameters"),
        "budget": (budget, Budget, "a Budget, e.g. meristem.Budget(params='36%')"),
        "method": (method, Method, "a Method or its name, e.g. 'paper' or meristem.methods.paper()"),
        "space": (space, (Space, type(None)), "what meristem.trace returns"),
    }
    for name, (value, kind, text) in expected.items():
        if not isinstance(value, kind):
            raise MeristemError(f"{name} must be {text}, got {type(value).__name__}")
    if budget.spend is not None and not method.controller.follows_plan:
        kind = type(method.controller).__name__
        raise BudgetError(f"a spend budget needs a controller that follows a plan, which {kind} does not; use Exact")


def as_optimizers(optimizer: Any, rules: Iterable[AnyRule]) -> Optimizers:
    """The optimizers, with the user's own rules for them; what is no rule is refused."""
    for rule in rules:
        if not isinstance(rule, (LayerRule, OpRule, OptimizerRule)):
            raise MeristemError(
                f"rules must be a list of LayerRule, OpRule and OptimizerRule of meristem.rules, got a "
                f"{type(rule).__name__}"
            )
    return Optimizers(optimizer, [rule for rule in rules if isinstance(rule, OptimizerRule)])


def space_of(
    given: Space | None, model: nn.Module, example_inputs: Any, rules: Iterable[AnyRule], options: dict[str, Any]
) -> Space:
    """The space that was given, or that of the model, in which something can grow.

    ``options`` are those of the trace; of the user's own rules those for layers and operations count.
    """
    if given is not None:
        return agreed_space(given, options)
    if example_inputs is None:
        raise MeristemError("Grower needs example_inputs (what the model is called with) or a traced space")
    own = [each for each in rules if not isinstance(each, OptimizerRule)]
    return with_groups(trace(model, example_inputs, rules=own, **options))


def check_training(model: nn.Module, optimizers: Optimizers) -> None:
    """What is trained must be in an optimizer: a resized parameter takes its place there, and nowhere else."""
    optimized = optimizers.slots()
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not trained:
        raise MeristemError("no parameter of the model is trained (requires_grad is False for all); nothing can grow")
    if not any(id(parameter) in optimized for parameter in trained.values()):
        return  # another model's optimizer: refused with its own words
    outside = [name for name, parameter in trained.items() if id(parameter) not in optimized]
    if outside:
        raise MeristemError(
            f"{len(outside)} trained parameters are not in the optimizer ({outside[0]}, ...): give one optimizer with "
            f"all of them, in several param groups if need be, or set requires_grad to False for those that stay"
        )


def copy_of(model: nn.Module, averaged: Any) -> nn.Module:
    """The copy of ``model`` in what keeps averages, which is that copy or has it in its attribute ``module``."""
    inner = averaged if type(averaged) is type(model) else getattr(averaged, "module", None)
    inner = unwrapped(inner) if isinstance(inner, nn.Module) else inner
    if not isinstance(inner, nn.Module) or type(inner) is not type(model):
        raise MeristemError(
            f"follow() takes an averaged copy of the model, a {type(model).__name__}, or an AveragedModel of it, got "
            f"{type(averaged).__name__}"
        )
    own = {id(parameter) for parameter in model.parameters()}
    if any(id(parameter) in own for parameter in inner.parameters()):
        raise MeristemError("follow() got the model itself, or a copy that shares its parameters; give a deep copy")
    return inner


def check_model(model: nn.Module) -> None:
    """Refuse a model whose weights are spread over the ranks, are another grower's, or are not numbers."""
    check_whole(model)
    for path, module in model.named_modules():
        if type(module).__name__ == "FusedMovingAvgObsFakeQuantize":
            raise MeristemError(
                f"{path} quantises for training as torch's prepare_qat has set it up, in one operation that is not "
                f"followed: grow the plain model, and call prepare_qat on what export() returns"
            )
    for name, parameter in model.named_parameters():
        if is_resized(parameter):
            raise MeristemError(
                f"{name} has been made smaller by another grower of this model, which has what was cut off: go on with "
                f"that one, or grow what its export() returns, with an optimizer made from that"
            )
        if parameter.is_meta:
            raise MeristemError(
                f"{name} is on the meta device, so it has no values to train: make the model on a real device, or "
                f"trace it alone to see what may grow"
            )
        if bool(torch.isnan(parameter.detach()).any()):
            raise MeristemError(
                f"{name} holds NaN before training: no unit of it can be rated; start from weights that are numbers"
            )


def check_numbers(epochs: Any, fine_tune: Any, seed: Any, batch_size: Any, steps_per_epoch: Any) -> None:
    """Refuse what is not a whole number, or too small."""
    needed = (("epochs", epochs, 1), ("fine_tune", fine_tune, 0), ("seed", seed, 0))
    optional = (("batch_size", batch_size, 1), ("steps_per_epoch", steps_per_epoch, 1))
    for name, value, lowest in (*needed, *(each for each in optional if each[1] is not None)):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < lowest:
            raise MeristemError(f"{name} must be a whole number of at least {lowest}, got {value!r}")


def check_shard(shard: Any, given: nn.Module, method: Method, space: Space, optimizers: Optimizers) -> None:
    """Refuse what a model of which each rank has a part cannot do."""
    if shard is None:
        return
    if not is_distributed():
        raise MeristemError("shard= needs the processes among which it shards: init_process_group() comes first")
    if given is not unwrapped(given):
        raise MeristemError(f"give shard=, or a {type(given).__name__}, not both: a model is sharded or copied")
    why = (
        (method.gate.scales, "its gates scale the weights in the forward pass"),
        (method.pressure is not None, "it acts on weights at every step"),
        (bool(space.blocks), "whole blocks of this space may be absent, whose gates look at the whole of a gradient"),
    )
    for cannot, reason in why:
        if cannot:
            raise MeristemError(
                f"this method cannot grow a sharded model: {reason}; use the default or search, without depth, or "
                f"DistributedDataParallel"
            )
    check_can_shard(optimizers)


def too_many_steps(epochs: int, fine_tune: int) -> MeristemError:
    """What is wrong when step() is called once more."""
    made_for = f"epochs={epochs}" + (f" and fine_tune={fine_tune}" if fine_tune else "")
    return MeristemError(
        f"step() was called more than {epochs + fine_tune} times, but this grower was made for {made_for}; call it "
        f"once per epoch"
    )


def agreed_seed(seed: Any) -> int:
    """The seed of rank 0, as Python's own number: numpy's would not be kept."""
    return from_rank_0(int(seed))


def check_method(method: Method, space: Space, model: nn.Module) -> None:
    """Refuse a method that cannot work on this model before anything is trained."""
    method.controller.check(space)
    _check_reach_of_gates(method, space, unwrapped(model))
    unread = groups_without_readers(space, unwrapped(model)) if method.looks_at_inputs else []
    if unread:
        raise MeristemError(
            f"this method looks at what convolutions and linear layers are given, and none of them reads {unread[0]}"
            f"{' and others' if len(unread) > 1 else ''}; pin them, trace(..., pin=[...]), or take another method"
        )
    if isinstance(model, nn.DataParallel) and method.gate.scales:
        raise MeristemError(
            "nn.DataParallel copies the model without its gates; use DistributedDataParallel, or a method whose gates "
            "are open, e.g. the default"
        )


def _check_reach_of_gates(method: Method, space: Space, model: nn.Module) -> None:
    """Refuse gates that scale weights which the model reads where gates do not put theirs."""
    if not method.gate.scales:
        return
    held = held_tensors(model)
    for name in dict.fromkeys(slot.tensor for slot in space.slots):
        for place in held.get(id(tensor_at(model, name)), ()):
            if not type(place.owner).__module__.startswith("torch.nn."):
                raise MeristemError(
                    f"{name} is also held in the attribute {place.attribute!r} of {type(place.owner).__name__}, where "
                    f"gates do not scale it; use a method whose gates are open, e.g. the default"
                )


def samples_of(example_inputs: Any, batch_size: int | None) -> Samples:
    """How many samples the example inputs have, and a step; without a batch size a step sees as many as they have."""
    first = example_inputs[0] if isinstance(example_inputs, (tuple, list)) and example_inputs else example_inputs
    has_samples = isinstance(first, torch.Tensor) and first.dim() > 0
    if batch_size is None:
        return Samples(len(first), len(first)) if has_samples else Samples(1, 1)
    if not has_samples:
        raise MeristemError(
            "batch_size needs example_inputs whose first entry is a tensor of samples, to know what one sample costs"
        )
    return Samples(len(first), batch_size)


def checked_helpers(method: Method, held_out_loss: Any, short_training: Any) -> Helpers:
    """What methods may ask for; refuses one that looks at held-out data or tries networks out without being able to."""
    if short_training is not None and not callable(short_training):
        raise MeristemError(
            f"short_training must be a function of a model, a number of steps and a seed, got "
            f"{type(short_training).__name__}"
        )
    if method.tries_out and short_training is None:
        raise MeristemError(
            "this method tries networks out before it decides: give short_training=, a function (model, steps, seed) "
            "that trains the model it is called with for so many steps, with an optimizer of its own, on batches drawn "
            "from the seed"
        )
    if held_out_loss is not None and not callable(held_out_loss):
        raise MeristemError(
            f"held_out_loss must be a function of a model that returns its mean loss, got "
            f"{type(held_out_loss).__name__}"
        )
    if method.needs_held_out and held_out_loss is None:
        raise MeristemError(
            "this method looks at held-out data when it decides: give held_out_loss=, a function that returns the mean "
            "loss of the model it is called with, on a few hundred samples that the model is not trained on"
        )
    return Helpers(held_out_loss, short_training)


def as_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of an epoch as floats."""
    numbers = {}
    for name, value in metrics.items():
        try:
            numbers[name] = float(value.detach() if isinstance(value, torch.Tensor) else value)
        except (TypeError, ValueError, RuntimeError):
            raise MeristemError(f"the metric {name} must be one number, got {type(value).__name__}") from None
    return numbers


def difference(what: str, theirs: Any, mine: Any) -> str:
    """The first difference between two runs, in a few words."""
    if isinstance(theirs, dict) and isinstance(mine, dict):
        name = next(name for name in [*mine, *theirs] if mine.get(name) != theirs.get(name))
        return f"its {what} has {name} = {theirs.get(name)}, here {mine.get(name)}"
    there, here = str(theirs), str(mine)
    start = max(0, _common(there, here) - 20)
    return f"its {what} is {there[start : start + 60]}, here {here[start : start + 60]}"


def check_identity(theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """Refuse the state of another run."""
    for what in mine:
        if mine[what] != theirs.get(what):
            raise FileError(f"was saved by another run: {difference(what, theirs.get(what), mine[what])}")


def without_addresses(text: str) -> str:
    """A description without addresses in memory, which a policy of the user's own may have in its repr."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def _common(one: str, other: str) -> int:
    """How many letters are the same at the start."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def identity(space: Space, model: nn.Module, optimizers: Optimizers) -> dict[str, Any]:
    """What of a model and its optimizer must be the same for a checkpoint to fit."""
    return {
        "model": {name: list(tensor.shape) for name, tensor in space.tensors.items()},
        "dtype": str(next(model.parameters()).dtype),
        "groups": dict(space.full),
        "optimizer": [
            text
            for optimizer in optimizers.all
            for text in (type(optimizer).__name__, *(str(len(group["params"])) for group in optimizer.param_groups))
        ],
    }


def agreed_space(space: Space, options: Mapping[str, Any]) -> Space:
    """The space, if something in it can grow; where a state is carried, and what counts, is told when it is traced."""
    as_traced = {"carried": space.carried, "outputs": space.outputs}
    as_told = {"carried": options["carried"], "outputs": as_choice(options["outputs"])}
    for name, told in as_told.items():
        if told is not None and told != as_traced[name]:
            raise MeristemError(
                f"this space was not traced with {name}={options[name]!r}: say so in trace(...), not here"
            )
    return with_groups(space)


def with_groups(space: Space) -> Space:
    """The space, if something in it can grow."""
    if not space.groups:
        reasons = Counter(reason for pin in space.pinned for reason in [pin.reason] * pin.units)
        common = [reason for reason, _ in reasons.most_common() if reason != "it is a model output"]
        why = f", mostly because {common[0]}" if common else ""
        raise MeristemError(f"nothing in this model can grow{why}; print(trace(...)) lists what is pinned and why")
    return space


def tell_of_overrun(budget: Budget, prices: Prices, widths: Mapping[str, int]) -> None:
    """Say that the network as it is now costs more than its budget, which it meets when the run lands."""
    now = prices.shares(widths)
    over = [
        f"{name} {now[name]:.1%} of the full model, {cap:.1%} in the budget"
        for name, cap in budget.shares(prices).items()
        if now.get(name, 0.0) > cap * (1 + 1e-9)
    ]
    if over:
        logging.getLogger("meristem").warning(
            "the exported network stands above its budget: %s; it comes down to it by the end of the run",
            ", ".join(over),
        )


def check_free(optimizers: Optimizers) -> None:
    """Refuse an optimizer to which another grower still listens."""
    hooks = [hook for each in optimizers.all for hook in getattr(each, "_optimizer_step_pre_hooks", {}).values()]
    if any(isinstance(getattr(hook, "__self__", None), Gating) for hook in hooks):
        raise MeristemError(
            "this optimizer already belongs to a grower that is not finished; make one grower per model"
        )
