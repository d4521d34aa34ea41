"""The command line. Torch is imported only once a command runs, so that ``--help`` is instant."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from meristem.errors import MeristemError


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 when it worked, 2 when the user must change something, 130 when it was stopped."""
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (for the rest of the process)
    parser = _parser()
    try:
        if not (sys.argv[1:] if argv is None else argv):
            parser.print_help()
            return 0
        args = parser.parse_args(argv)
        args.words = list(sys.argv[1:] if argv is None else argv)
        module, _, function = args.command.partition(":")
        return int(getattr(importlib.import_module(f"meristem_bench.commands.{module}"), function)(args))
    except MeristemError as error:
        print(f"meristem: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("meristem: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # who read our output has gone; what a run has finished is on disk
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # a full disk, a folder that became read-only: what was written before stays good
        where = f"{error.filename}: " if error.filename else ""
        print(f"meristem: {where}{error.strerror or error}", file=sys.stderr)
        return 2


class _Parser(argparse.ArgumentParser):
    """Says in one sentence what is wrong, as everything else here does. Flags are written out."""

    def __init__(self, **options: object) -> None:
        super().__init__(allow_abbrev=False, **options)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        raise MeristemError(f"{message}; see {self.prog} --help")


class _Version(argparse.Action):
    """Reads the version of the installed package, and so needs no import of torch."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(f"meristem {importlib.metadata.version('meristem')}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="meristem", description="Grow neural networks while they train.")
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_grow(commands.add_parser("grow", help="grow a network while it trains, under a budget", description=_GROW))
    _add_sweep(commands.add_parser("sweep", help="grow under several budgets, beside comparisons", description=_SWEEP))
    _add_simulate(
        commands.add_parser("simulate", help="show the expected course of cost and widths of a run, without training")
    )
    listing = commands.add_parser("list", help="show the recipes and the methods")
    listing.set_defaults(command="list:show")
    export = commands.add_parser("export", help="take the network out of a run, finished or not")
    export.add_argument("run_folder", metavar="RUN", help="the folder of a run")
    export.add_argument("--out", metavar="DIR", required=True, help="where the network goes")
    export.add_argument("--onnx", action="store_true", help="write it as ONNX too, checked against ONNX Runtime")
    export.add_argument("--torch-export", action="store_true", help="write it as torch.export does too, checked")
    _add_rerun_flags(export)
    export.set_defaults(command="export:export", set=[])
    data = commands.add_parser("data", help="fetch a data set from its official home")
    names = "cifar10, cifar100, mnist, fashion-mnist, voc2012, voc2012-extra, imagenet"
    data.add_argument("name", metavar="NAME", help=names)
    data.add_argument("folder", metavar="DIR", help="where it goes")
    data.set_defaults(command="data:fetch")
    _add_evaluate(commands.add_parser("evaluate", help="load the network of a finished run and test it again"))
    report = commands.add_parser("report", help="draw runs: one page, and figures as PNG and SVG", description=_REPORT)
    report.add_argument("runs", metavar="RUN", nargs="+", help="folders of runs, or folders with runs in them")
    report.add_argument("--out", metavar="DIR", help="where it goes (default: RUN, or for several: report)")
    report.set_defaults(command="report:write")
    _add_trace(
        commands.add_parser(
            "trace",
            help="show what in a model may grow and shrink, and what it costs",
            description="Without --model: a ResNet-20, and a demonstration that resizing it is exact.",
        )
    )
    return parser


_REPORT = (
    "Runs that differ in their seeds alone become one curve with a band; others are overlaid. A run may be unfinished: "
    "the report shows what is there."
)


_GROW = "Without RECIPE: a small residual network on handwritten digits, about a minute on a laptop."


_SWEEP = (
    "For every budget: the network grown under it, the uniformly narrowed one, and the grown one's widths trained from "
    "scratch. RECIPE may be several, with commas between. Given again, the command goes on where it was stopped; more "
    "budgets, arms or seeds may be added."
)


def _add_grow(grow: argparse.ArgumentParser) -> None:
    _add_settings(grow)
    grow.add_argument("--budget", metavar="CAPS", help="what the final network may cost, e.g. params=36%%,macs=50%%")
    grow.add_argument("--with-dense", action="store_true", help="train the full model too, for comparison")
    grow.add_argument("--out", metavar="DIR", help="the folder of the run (default: runs/RECIPE-seedS)")
    grow.add_argument(
        "--resume", metavar="DIR", nargs="?", const="", help="go on with a stopped run (default: the latest one)"
    )
    _add_report(grow)
    grow.add_argument("--seeds", metavar="N", help="run N seeds, from --seed on, and show mean and deviation")
    _add_jobs(grow)
    grow.add_argument(
        "--processes", metavar="N", help="share every batch among N processes; or start this command by torchrun"
    )
    grow.add_argument("--tensorboard", action="store_true", help="write graphs for TensorBoard too, as the run goes")
    grow.add_argument("--wandb", action="store_true", help="send them to Weights & Biases, as its own settings say")
    grow.add_argument("--mlflow", action="store_true", help="send them to MLflow, as its own settings say")
    grow.add_argument("--plain", action="store_true", help="on a terminal: one line instead of bars for the widths")
    grow.set_defaults(command="grow:grow")


def _add_sweep(sweep: argparse.ArgumentParser) -> None:
    _add_settings(sweep)
    sweep.add_argument("--budgets", metavar="LIST", help="e.g. 10%%,20%%,36%%,50%%,80%% (default: the recipe's own)")
    sweep.add_argument("--by", metavar="METRIC", choices=("params", "macs"), help="of what (default: as the recipe)")
    sweep.add_argument(
        "--arms",
        metavar="LIST",
        default="grown,uniform,direct",
        help="grown, methods, direct:cost=grown (%(default)s)",
    )
    sweep.add_argument("--out", metavar="DIR", help="the folder of all runs (default: runs/RECIPE-sweep)")
    sweep.add_argument("--seeds", metavar="N", default="1", help="run N seeds of everything, from --seed on")
    _add_jobs(sweep)
    sweep.add_argument(
        "--ray", metavar="ADDRESS", nargs="?", const="", help="run them on a Ray cluster (default: one on this machine)"
    )
    _add_report(sweep)
    sweep.set_defaults(command="study:sweep")


def _add_simulate(simulate: argparse.ArgumentParser) -> None:
    _add_settings(simulate)
    simulate.add_argument(
        "--budget", metavar="CAPS", help="what the final network may cost, e.g. params=36%%,macs=50%%"
    )
    simulate.add_argument("--seeds", metavar="N", default="1", help="simulate N seeds, from --seed on")
    simulate.set_defaults(command="simulate:show")


def _add_evaluate(evaluate: argparse.ArgumentParser) -> None:
    evaluate.add_argument("run_folder", metavar="RUN", help="the folder of a finished run")
    _add_rerun_flags(evaluate)
    evaluate.set_defaults(command="evaluate:show", set=[])


def _add_rerun_flags(command: argparse.ArgumentParser) -> None:
    """What was run, for commands that build its network again, perhaps on another machine."""
    command.add_argument("--recipe", metavar="MODULE:FUNCTION", help="what was run, if it was a recipe of your own")
    command.add_argument("--model", metavar="MODULE:FUNCTION", help="the model that was grown, if it was your own")
    command.add_argument("--data", metavar="DIR", help="where the data lie, if they have moved")
    command.add_argument("--device", metavar="DEVICE", help="cpu, cuda, ... (default: that of the run)")


def _add_settings(command: argparse.ArgumentParser) -> None:
    """What is run, for commands that train."""
    command.add_argument("recipe", metavar="RECIPE", nargs="?", help="a name of `meristem list`, or MODULE:FUNCTION")
    command.add_argument("--model", metavar="MODULE:FUNCTION", help="a model of your own in place of the recipe's")
    command.add_argument("--epochs", metavar="N", help="how often to go through the training data")
    command.add_argument("--seed", metavar="S", help="of everything random; the same seed gives the same network")
    command.add_argument("--data", metavar="DIR", help="where the data lie, for recipes that do not bring their own")
    command.add_argument("--device", metavar="DEVICE", help="cpu, cuda, cuda:1, mps, ...")
    command.add_argument(
        "--method", metavar="NAME", help="how to grow, e.g. search or default:peak=2.5; see `meristem list`"
    )
    command.add_argument(
        "--set", metavar="FIELD=VALUE", action="append", default=[], help="any other setting, e.g. lr=0.05; repeat"
    )


def _add_report(command: argparse.ArgumentParser) -> None:
    command.add_argument("--report", action="store_true", help="draw it at the end, as `meristem report` does")


def _add_jobs(command: argparse.ArgumentParser) -> None:
    command.add_argument("--jobs", metavar="N", default="1", help="runs at the same time, of several (default: 1)")


def _add_trace(trace: argparse.ArgumentParser) -> None:
    trace.add_argument("--model", metavar="MODULE:FUNCTION", help="a function or class that returns an nn.Module")
    trace.add_argument(
        "--input",
        metavar="SHAPE",
        action="append",
        help="shape of an example input, e.g. 1x3x224x224; repeat for several; 2x35:int for whole numbers",
    )
    trace.add_argument("--pin", metavar="PATTERN", action="append", default=[], help="module paths that must stay")
    trace.add_argument(
        "--frozen", choices=["pin", "resize"], default="pin", help="whether units of frozen parameters stay (default)"
    )
    trace.add_argument("--strict", action="store_true", help="fail on an operation that is not understood")
    trace.add_argument("--depth", action="store_true", help="find blocks that may be absent, too")
    trace.add_argument("--html", metavar="FILE", help="draw what was found as a page for the browser")
    trace.set_defaults(command="trace:show")
