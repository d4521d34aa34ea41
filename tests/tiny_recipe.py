"""A recipe as a user would write it, as text: tests put it into a file of their own, with what they need changed."""

from __future__ import annotations

_TEXT = """
import os, time
import torch
from torch import nn
from meristem_bench.data.arrays import Arrays
from meristem_bench.runs import DataConfig, Machine, OptimizerConfig, Run
from meristem_bench.runs.task import Classification

def load(run):
    inputs = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
    targets = inputs[:, :3].argmax(1)
    part = lambda first: (inputs[first : first + 32], targets[first : first + 32])
    return Arrays({"train": part(0), "validation": part(32), "test": part(64)}, augment=met)

def met(inputs, generator):
#MET
    return inputs

def network():
    return nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 3))

def tiny():
    settings = {"optimizer": OptimizerConfig(lr=0.1), "machine": Machine(threads=1)}
    return Run("tiny", "Tiny.", network, load, Classification(), epochs=#EPOCHS, batch=16, **settings)
"""

SLOW = """
    if os.path.exists("slow"):  # long enough to be stopped in the middle
        time.sleep(0.1)
"""


def tiny_recipe(epochs: int = 3, met: str = "", more: str = "") -> str:
    """``met`` is what happens when a batch is met, ``more`` what else is in the file."""
    return _TEXT.replace("#MET", met.strip("\n")).replace("#EPOCHS", str(epochs)) + more
