"""Growing beside two architecture searches on the same space of blocks, search cost on the same ledger.

    python benchmarks/architecture_search.py --epochs 12                     # digits, about a minute
    python benchmarks/architecture_search.py basic3-resnet-cifar10-short --data DIR --seeds 2 --out runs/nas

The space is that of growing with depth: a network of three stages, each with room for some blocks. DARTS and
ProxylessNAS search which blocks to keep under the recipe's budget; the networks that they and growing find are trained
from scratch for all epochs (the method `direct`), so that `with all` is what the whole of each costs. A search has as
many epochs as the recipe, on half of the training samples; it finds blocks alone, growing finds widths, too. `uniform`
is the same share of everything without any search. What is finished in --out is not run again.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

from meristem_bench.architecture_search.search import search
from meristem_bench.architecture_search.searchers import Darts, Proxyless
from meristem_bench.models.resnet_cifar import ResNetCifar
from meristem_bench.recipes.lookup import find_run
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.loop import run_to_end
from meristem_bench.runs.result import finished_result
from meristem_bench.runs.run import Run
from meristem_bench.show.progress import ProgressDisplay
from meristem_bench.show.result_tables import comparison_table

SEARCHERS = (Darts(), Proxyless())


def digits() -> Run:
    """The digits with room for four blocks in each of three stages."""
    model = partial(ResNetCifar, channels=1, width=8, blocks=(4, 4, 4))
    return find_run("digits", None).replace(name="deep-digits", model=model, depth=True)


def trained(run: Run, folder: Folder) -> dict[str, Any]:
    """The result of a run, which is made if it is not there."""
    found = finished_result(folder)
    if found is None:
        folder.path.mkdir(parents=True, exist_ok=True)
        found = run_to_end(run, folder, ProgressDisplay(sys.stderr, plain=True))
    return found


def results_of(run: Run, out: Path) -> dict[str, dict[str, Any]]:
    """Of one seed: growing, its network trained from scratch, and the same of every search."""
    folder = {name: Folder(out / f"{name}-seed{run.seed}") for name in ("uniform", "grown")}
    found = {
        "uniform": trained(run.replace(method="uniform"), folder["uniform"]),
        "grown": trained(run, folder["grown"]),
    }
    sources = {"grown, then trained": folder["grown"]}
    for searcher in SEARCHERS:
        searched = Folder(out / f"{searcher.name}-seed{run.seed}")
        if finished_result(searched) is None:
            search(run, searcher).write(run, searcher, searched)
        sources[f"{searcher.name}, then trained"] = searched
    for title, source in sources.items():
        direct = run.replace(method="direct", widths=str(source.path.resolve()))
        found[title] = trained(direct, Folder(source.path.with_name(f"{source.path.name}-direct")))
    return found


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", nargs="?", help="a recipe that grows blocks; without: digits")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--budget")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--data", help="the folder with the data of the recipe")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="settings of the recipe")
    parser.add_argument("--out", type=Path, default=Path("runs/architecture-search"))
    args = parser.parse_args(words)
    settings = dict(each.split("=", 1) for each in args.set)
    given = {"epochs": args.epochs, "data_dir": args.data, "budget": args.budget}
    settings |= {name: value for name, value in given.items() if value is not None}
    run = (find_run(args.recipe, None) if args.recipe else digits()).with_settings(settings)
    run.machine.prepare()
    rows: dict[str, list[dict[str, Any]]] = {}
    for seed in range(args.seeds):
        for title, result in results_of(run.replace(seed=seed), args.out).items():
            rows.setdefault(title, []).append(result)
    print(comparison_table(list(rows.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
