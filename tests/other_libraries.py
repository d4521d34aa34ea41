"""Libraries that meristem works with and does not need: imported for a test, or it is skipped with a reason."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
_SCHEMAS: list[torch.library.Library] = []  # kept alive


def library(name: str) -> ModuleType:
    """The library, if it is installed.

    A torchvision built for CUDA beside a torch for the CPU cannot be imported for want of two operations, and neither
    can whatever imports it: these get their names first.
    """
    if importlib.util.find_spec("torchvision") and not hasattr(torch.ops.torchvision, "nms") and not _SCHEMAS:
        _SCHEMAS.append(torch.library.Library("torchvision", "DEF"))
        for operation in ("nms", "qnms"):
            _SCHEMAS[0].define(f"{operation}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return pytest.importorskip(name, reason=f"{name} is not installed")


def example(name: str) -> ModuleType:
    """A program of ``examples/`` as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
