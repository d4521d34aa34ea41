"""The writers of graphs by the names of their flags and of the extras that they need."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Collection

from meristem.errors import MeristemError
from meristem_bench.runs.folder import Folder
from meristem_bench.show.graphs import GraphWriter
from meristem_bench.show.mlflow_runs import MlflowWriter
from meristem_bench.show.tensorboard import TensorBoardWriter
from meristem_bench.show.weights_and_biases import WandbWriter

WRITERS: dict[str, type[TensorBoardWriter] | type[WandbWriter] | type[MlflowWriter]] = {
    "tensorboard": TensorBoardWriter,
    "wandb": WandbWriter,
    "mlflow": MlflowWriter,
}


def wanted_graphs(args: argparse.Namespace) -> tuple[str, ...]:
    """The names of those that a command line asks for; refuses what is not installed before anything is run."""
    names = tuple(name for name in WRITERS if getattr(args, name, False))
    for name in names:
        try:
            importlib.import_module(WRITERS[name].needs)
        except ImportError:
            raise MeristemError(f"--{name} needs a package more: pip install 'meristem[{name}]'") from None
    return names


def make_writers(names: Collection[str]) -> list[GraphWriter]:
    return [WRITERS[name]() for name in names]


def have_graphs(folder: Folder, names: Collection[str]) -> bool:
    """Whether a run has been told to all of them."""
    return all(WRITERS[name].mark(folder).exists() for name in names)
