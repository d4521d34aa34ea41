"""Torch-Pruning's own magnitude and Taylor pruning with fine-tuning, on the data and the ledger of our recipes.

    python benchmarks/torch_pruning_runs.py digits --budget 36% --epochs 20
    python benchmarks/torch_pruning_runs.py digits --budget 36% --epochs 20 --beside runs/digits-sweep

It needs `pip install torch-pruning` (1.6), which is no dependency of ours. It does what a user of that library does:
the full network is trained for half of the epochs, pruned once by the library's pruner, and trained on with a new
optimizer, which the pruned parameters need. The share that is pruned is bisected so that the parameters are within the
budget. Data, batches, learning rate and number of epochs are the recipe's, as for the arm `l1` of a sweep, and the
training cost is counted as there: three forward passes of the network that ran for a step, and for Taylor the passes
that make its gradients. `--beside DIR` puts the runs of a sweep of the same recipe into the table.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import meristem
from meristem.control.budget import Budget
from meristem.cost.ledger import FINE_TUNE, FORWARD_AND_BACKWARD, PRE_TRAIN, SEARCH, Ledger
from meristem.cost.price import Prices
from meristem_bench.recipes.lookup import find_run
from meristem_bench.runs.data import Data
from meristem_bench.runs.loop import evaluate
from meristem_bench.runs.run import Run
from meristem_bench.runs.training import build_model, load_data, lr_factor
from meristem_bench.show.result_tables import comparison_table

MISSING = "torch_pruning is not installed, so there is nothing to measure: pip install torch-pruning"
TAYLOR_BATCHES = 8
VARIANTS = ("magnitude", "magnitude-global", "taylor", "taylor-global")


@dataclass
class Trainer:
    """Trains a model on a recipe's data as the recipe says, over all its epochs, and counts what that costs."""

    run: Run
    data: Data
    order: torch.Generator
    ledger: Ledger
    taken: int = 0

    def train(self, model: nn.Module, epochs: int, macs_frac: float, stage: str) -> None:
        optimizer, steps = self.run.optimizer.build(model), self.data.steps(self.run.batch)
        rates = [group["lr"] for group in optimizer.param_groups]
        for _ in range(epochs):
            model.train()
            for inputs, targets in self.data.train(self.run.batch, self.order):
                factor = lr_factor(self.run, self.taken, steps * self.run.epochs)
                for group, rate in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = rate * factor
                optimizer.zero_grad()
                self.run.task.loss(model(inputs), targets).backward()
                optimizer.step()
                self.taken += 1
            self.ledger = self.ledger.after_training(steps, macs_frac, stage)

    def gradients(self, model: nn.Module) -> dict[str, Tensor]:
        """The gradients that Taylor importance is made of, summed over some batches."""
        model.zero_grad()
        for inputs, targets in islice(self.data.train(self.run.batch, self.order), TAYLOR_BATCHES):
            self.run.task.loss(model(inputs), targets).backward()
        self.ledger = self.ledger.after_evaluating(FORWARD_AND_BACKWARD * TAYLOR_BATCHES, 1.0, SEARCH)
        return {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}


def pruned(model: nn.Module, example: Tensor, variant: str, ratio: float, gradients: dict[str, Tensor]) -> nn.Module:
    """A copy of the model, pruned by the library; the last linear layer keeps its outputs."""
    import torch_pruning as tp

    smaller = copy.deepcopy(model)
    for name, parameter in smaller.named_parameters():
        parameter.grad = gradients[name].clone() if name in gradients else None
    kind = tp.importance.GroupTaylorImportance if "taylor" in variant else tp.importance.GroupMagnitudeImportance
    pruner = tp.pruner.BasePruner(
        smaller,
        example,
        importance=kind(),
        global_pruning=variant.endswith("global"),
        pruning_ratio=ratio,
        ignored_layers=[[each for each in smaller.modules() if isinstance(each, nn.Linear)][-1]],
    )
    pruner.step()
    return smaller


def within(model: nn.Module, example: Tensor, variant: str, allowed: float, gradients: dict[str, Tensor]) -> nn.Module:
    """The largest pruned network with no more than so many parameters."""
    low, high, best = 0.0, 0.99, None
    for _ in range(10):
        ratio = (low + high) / 2
        smaller = pruned(model, example, variant, ratio, gradients)
        if sum(each.numel() for each in smaller.parameters()) <= allowed:
            high, best = ratio, smaller
        else:
            low = ratio
    if best is None:
        raise SystemExit(f"Torch-Pruning cannot make this network as small as the budget by {variant}")
    return best


def costs(model: nn.Module, example: tuple[Tensor, ...]) -> tuple[int, int]:
    """Parameters and multiply-adds, counted as everywhere here."""
    space = meristem.trace(model, example)
    assert space.costs is not None
    return space.costs[1].params, space.costs[1].macs


def result_of(run: Run, data: Data, variant: str, seed: int) -> dict[str, Any]:
    """One run, with what a table needs of it."""
    torch.manual_seed(seed)
    started, example = time.perf_counter(), data.example
    model = build_model(run, data)
    params, macs = costs(model, example)
    allowed = params * run.growth.budget.shares(Prices(meristem.trace(model, example)))["params"]
    order = torch.Generator().manual_seed(seed)
    trainer = Trainer(run, data, order, Ledger(macs / len(example[0]) * run.batch))
    trainer.train(model, run.epochs // 2, 1.0, PRE_TRAIN)
    gradients = trainer.gradients(model) if "taylor" in variant else {}
    small = within(model, example[0], variant, allowed, gradients)
    small_params, small_macs = costs(small, example)
    trainer.train(small, run.epochs - run.epochs // 2, small_macs / macs, FINE_TUNE)
    ledger = trainer.ledger
    return {
        "name": run.name,
        "method": f"torch-pruning {variant}",
        "headline": run.task.headline,
        "seed": seed,
        "test": evaluate(run, data, small, "test"),
        "validation": evaluate(run, data, small, "validation"),
        "params": small_params,
        "macs": small_macs,
        "params_frac": small_params / params,
        "macs_frac": small_macs / macs,
        "spend_frac": ledger.spend_frac,
        "total_spend_frac": ledger.total_frac,
        "spend_by_stage": dict(ledger.by_stage),
        "seconds": time.perf_counter() - started,
        "blocks": {},
    }


def beside(folder: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The finished runs of a sweep, by the folder's name without its seed."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("**/result.json")):
        title = str(path.parent.relative_to(folder)).rpartition("-seed")[0]
        found.setdefault(title, []).append(json.loads(path.read_text(encoding="utf-8")))
    yield from found.items()


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--budget", default="36%", help="of the parameters")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--data", help="the folder with the data of the recipe")
    parser.add_argument("--variants", default="magnitude,taylor", help=f"of {', '.join(VARIANTS)}")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="settings of the recipe")
    parser.add_argument("--beside", type=Path, help="the folder of a sweep whose runs are in the table, too")
    args = parser.parse_args(words)
    try:
        import torch_pruning  # noqa: F401
    except ImportError:
        print(MISSING)
        return 0
    settings = dict(each.split("=", 1) for each in args.set)
    settings |= {name: value for name in ("epochs", "data") if (value := getattr(args, name)) is not None}
    run = find_run(args.recipe, None).with_settings(settings).replace(budget=Budget.parse(args.budget))
    run.machine.prepare()
    data = load_data(run)
    rows = [] if args.beside is None else list(beside(args.beside))
    for variant in args.variants.split(","):
        results = []
        for seed in range(args.seeds):
            results.append(result_of(run.replace(seed=seed), data, variant, seed))
            print(f"{variant} seed {seed}: {results[-1]['test']}, {results[-1]['spend_by_stage']}", file=sys.stderr)
        rows.append((f"torch-pruning {variant}", results))
    print(comparison_table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
