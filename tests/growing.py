"""What the tests of growing share: a net of the zoo in a loop with a grower, and everything such a run depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn, optim
from torch.optim.lr_scheduler import CosineAnnealingLR

from helpers import build, loss, run, snapshot
from meristem import Budget, Grower, Method, Space
from meristem.history import Record

# Those that fit any network and budget; with a plan that rises above the budget, so that units go as well as come.
PRESETS = ("default:peak=1.2", "search:peak=1.2", "random", "gates:peak=1.2", "paper", "uniform")
KINDS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "sgd": lambda params: optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=1e-4),
    "adamw": lambda params: optim.AdamW(params, lr=1e-2),
}
TIMES = ("seconds", "peak_bytes")  # what a record says about the machine, not about the run


class Growth:
    """A loop as a user writes it: random batches, a learning-rate schedule, one grower.step() an epoch.

    The batches come from torch's global random numbers, so that a run goes on as before only if these do.
    """

    def __init__(
        self,
        name: str,
        space: Space,
        preset: str | Method = "default",
        *,
        kind: str = "sgd",
        epochs: int = 5,
        steps: int = 2,
        budget: Budget | str | None = None,
        **more: Any,
    ) -> None:
        self.model, self.inputs = build(name, torch.float32)
        self.optimizer = KINDS[kind](self.model.parameters())
        self.steps, self.done, self.losses = steps, 0, list[float]()
        self.grower = Grower(
            self.model,
            self.optimizer,
            self.inputs,
            budget=budget or Budget(params="50%"),
            epochs=epochs,
            method=preset,
            space=space,
            **more,
        )
        self.scheduler = CosineAnnealingLR(self.optimizer, epochs, eta_min=1e-4)

    def step(self) -> None:
        """One step of the optimizer; after the last of an epoch, the grower's too."""
        self.optimizer.zero_grad()
        value = loss(run(self.model, batch(self.inputs)))
        value.backward()
        self.optimizer.step()
        self.losses.append(float(value.detach()))
        self.done += 1
        if self.done % self.steps == 0:
            self.scheduler.step()
            self.grower.step(loss=self.losses[-1])

    def go(self, until: int | None = None) -> Growth:
        """Train on, until that many steps are done (default: to the end)."""
        epochs = self.grower.epochs + self.grower.fine_tune
        while self.done < (epochs * self.steps if until is None else until):
            self.step()
        return self

    def save(self, path: Path) -> None:
        self.grower.checkpoint(path, done=self.done, losses=self.losses, scheduler=self.scheduler.state_dict())

    def resume(self, path: Path) -> Growth:
        extra = self.grower.resume(path)
        self.done, self.losses = extra["done"], extra["losses"]
        self.scheduler.load_state_dict(extra["scheduler"])
        return self


def batch(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Random inputs like these."""
    return tuple(torch.randn_like(x) if x.is_floating_point() else torch.randint_like(x, 11) for x in inputs)


def spoil(model: nn.Module) -> None:
    """Change every number of a model: what is taken from a checkpoint cannot come from here."""
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(torch.rand_like(tensor))


def timeless(records: list[Record]) -> list[Record]:
    """Records without what depends on the machine."""
    return [{key: value for key, value in record.items() if key not in TIMES} for record in records]


def scores_of(grower: Grower) -> dict[str, Any]:
    """The present score of every unit."""
    return grower._growth.decider.keeper.scores(grower._growth.gating.signals())


def everything(growth: Growth) -> dict[str, Any]:
    """All that the rest of a run depends on, by name: tensors, arrays and plain values."""
    grower, live = growth.grower, growth.grower.live
    store = live._store.state_dict()
    found: dict[str, Any] = {
        **snapshot(growth.model, growth.optimizer),
        **{f"mask {name}": mask for name, mask in live.masks.items()},
        **{f"lived {name}": mask for name, mask in live.lived.items()},
        **{f"home {name}": home.clone() for name, home in store["homes"].items()},
        **{f"home of {key} of {name}": home.clone() for name, key, home in store["moments"]},
        **{f"first {name}": values.clone() for name, values in store["initial"].items()},
        "never lived": dict(store["like"]),
        "absent": sorted(live.tree.absent),
        **{f"score {name}": values for name, values in scores_of(grower).items()},
        **{f"drawn {name}": values.copy() for name, values in grower._growth.progress.drawn.items()},
        "settings": [{k: v for k, v in group.items() if k != "params"} for group in growth.optimizer.param_groups],
        "schedule": growth.scheduler.state_dict(),
        "epoch": grower.epoch,
        "ledger": vars(grower.ledger).copy(),
        "records": timeless(grower.records),
        "rng": grower._growth.decider.rng.bit_generator.state,
        "torch rng": torch.get_rng_state(),
        "losses": list(growth.losses),
        "path": grower.history.path and grower.history.path.read_bytes(),
    }
    return found


def assert_same(got: Mapping[str, Any], expected: Mapping[str, Any], leave: tuple[str, ...] = ()) -> None:
    """Bit for bit; NaN marks what never lived and equals itself."""
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        if name in leave:
            continue
        if isinstance(value, Tensor):
            assert got[name].dtype == value.dtype, name
            assert got[name].shape == value.shape, name
            assert torch.equal(got[name].isnan(), value.isnan()), name
            assert torch.equal(got[name].nan_to_num(), value.nan_to_num()), name
        elif isinstance(value, np.ndarray):
            assert np.array_equal(got[name], value), name
        else:
            assert got[name] == value, name
