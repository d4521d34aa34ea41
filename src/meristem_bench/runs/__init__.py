"""Runs: what a recipe returns, as data, and the loop that carries it out."""

from meristem_bench.runs.data import Data, DataConfig
from meristem_bench.runs.dropout import Dropout
from meristem_bench.runs.growth import GrowthConfig
from meristem_bench.runs.machine import Machine
from meristem_bench.runs.optimizer import FineTuning, OptimizerConfig
from meristem_bench.runs.run import Run
from meristem_bench.runs.smoothing import Smoothing

__all__ = [
    "Data",
    "DataConfig",
    "Dropout",
    "FineTuning",
    "GrowthConfig",
    "Machine",
    "OptimizerConfig",
    "Run",
    "Smoothing",
]
