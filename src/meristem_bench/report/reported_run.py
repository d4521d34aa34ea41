"""A run as a report sees it: what its folder holds, by column, by group and by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from meristem.control.budget import Budget
from meristem.errors import MeristemError
from meristem.space.outline import width
from meristem_bench.runs.result import trains_full_model

Record = dict[str, Any]
FloatArray = npt.NDArray[np.float64]
# What content of another shape than expected raises.
DAMAGE = (ArithmeticError, AttributeError, KeyError, TypeError, ValueError)
_LARGEST = 1e100  # a number beyond it is damage, and would break sums and scales


@dataclass(frozen=True)
class ReportedRun:
    """A run, as far as its folder holds it."""

    path: Path
    name: str
    network: str  # a model of the user's own, if it was one
    settings: Mapping[str, Any]
    records: tuple[Record, ...]
    result: Mapping[str, Any] | None
    outline: Mapping[str, Any] | None
    missing: tuple[str, ...]  # sentences about what the folder lacks

    @property
    def epochs(self) -> FloatArray:
        return self.column("epoch")

    @property
    def seed(self) -> Any:
        return self.settings.get("seed", 0)

    @property
    def folder(self) -> str:
        """The last part of its path, however that is written."""
        return self.path.resolve().name

    @property
    def method(self) -> str:
        return str(self.settings.get("method", "unknown"))

    @property
    def is_full_model(self) -> bool:
        """Whether the full model was trained, without a budget."""
        return trains_full_model(self.method)

    @property
    def at_equal_cost(self) -> bool:
        """Whether it was trained for as long as makes it cost what another run has cost."""
        return bool(self.settings.get("cost_of"))

    @property
    def is_reference(self) -> bool:
        """Whether others are compared with it: the full model, trained for all its epochs."""
        return self.is_full_model and not self.at_equal_cost

    @property
    def caps(self) -> dict[str, float]:
        """The budget as shares of the full model, as far as they are known."""
        if self.is_full_model:
            return {}
        costs: dict[str, float] = {}
        for name in ("params", "macs"):
            pair = (self.outline or {}).get(name)
            with suppress(*DAMAGE):
                costs[name] = float(pair[1])  # type: ignore[index]
        dense = {name: cost for name, cost in costs.items() if np.isfinite(cost) and cost > 0}
        with suppress(MeristemError):
            return Budget.parse(str(self.settings.get("budget"))).shares_of(dense)
        return {}

    def column(self, *path: str) -> FloatArray:
        """One number of every record, NaN where there is none: ``column("metrics", "train_loss")``."""
        return np.array([number(record, path) for record in self.records], dtype=np.float64)

    def names(self, *path: str) -> list[str]:
        """The keys that any record has at ``path``, in the order of their first appearance."""
        keys: dict[str, None] = {}
        for record in self.records:
            content: Any = record
            for key in path:
                content = content.get(key) if isinstance(content, dict) else None
            if isinstance(content, dict):
                keys.update(dict.fromkeys(content))
        return list(keys)

    @cached_property
    def full(self) -> dict[str, float]:
        """The units of every group at full size; without an outline, the most it ever had."""
        if self.outline is not None:
            return {group["name"]: float(group["units"]) for group in self.outline["groups"]}
        groups = self.names("widths")
        return {name: float(np.nan_to_num(self.column("widths", name)).max(initial=1.0)) for name in groups}

    @cached_property
    def depth_groups(self) -> frozenset[str]:
        """Groups whose unit is a whole block."""
        groups = self.outline["groups"] if self.outline is not None else ()
        return frozenset(group["name"] for group in groups if group["kind"] == "depth")

    @property
    def width_groups(self) -> list[str]:
        """Groups of filters, cells or heads, in the order of the network."""
        recorded = set(self.names("widths")) - self.depth_groups
        return [name for name in self.full if name in recorded]

    @property
    def layers(self) -> list[tuple[str, float, float, int]]:
        """Every layer of the final network: its module, its width, its full width, its stage.

        Empty where the last record lacks the width of a group.
        """
        if self.outline is None or not self.records:
            return []
        widths = {name: number(self.records[-1], ("widths", name)) for name in self.full}
        if not np.isfinite(list(widths.values())).all():
            return []
        return [
            (layer["module"], width(layer["out"], widths), float(layer["out"]["size"]), int(layer["stage"]))
            for layer in self.outline["layers"]
        ]


def number(content: Any, path: Sequence[str]) -> float:
    """The number that stands at ``path``, NaN where there is none.

    >>> number({"a": {"b": 3}}, ("a", "b")), number({"a": "b"}, ("a", "b"))
    (3.0, nan)
    """
    for key in path:
        content = content.get(key) if isinstance(content, dict) else None
    return float(content) if isinstance(content, (int, float)) and abs(content) < _LARGEST else float("nan")
