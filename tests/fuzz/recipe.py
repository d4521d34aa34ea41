"""Recipes: a random module as data, the source that is written from it, and the module."""

from __future__ import annotations

import functools
import linecache
import math
import random
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from fuzz.attending import ATTENTION
from fuzz.constants import CONSTANTS
from fuzz.construct import FLAT, IMAGE, SEQUENCE, Construct
from fuzz.control import CONTROL
from fuzz.helpers import HELPERS
from fuzz.layers import LAYERS
from fuzz.moves import MOVES, REDUCTIONS
from fuzz.positions import POSITIONS
from fuzz.sharing import SHARING
from fuzz.vision import VISION
from fuzz.wiring import WIRING
from fuzz.writes import WRITES

FAMILIES: Mapping[str, Mapping[str, Construct]] = MappingProxyType(
    {
        "layers": LAYERS,
        "moves": MOVES,
        "reductions": REDUCTIONS,
        "writes": WRITES,
        "constants": CONSTANTS,
        "control": CONTROL,
        "sharing": SHARING,
        "positions": POSITIONS,
        "attention": ATTENTION,
        "wiring": WIRING,
        "vision": VISION,
    }
)
GRAMMAR: Mapping[str, Construct] = MappingProxyType(
    {name: c for family in FAMILIES.values() for name, c in family.items()}
)
_WEIGHTS = {
    **{"layers": 6, "moves": 3, "reductions": 1, "writes": 2, "constants": 2, "control": 1, "sharing": 1},
    **{"positions": 1, "attention": 2, "wiring": 2, "vision": 3},
}
_WIDTHS = (4, 6, 8, 9)
_WIDEST = 24


@dataclass(frozen=True)
class Step:
    """A construct, and the seed of the numbers that are filled in."""

    construct: str
    seed: int


@dataclass(frozen=True)
class Recipe:
    """All that a module is made from. Steps that do not fit what flows into them are left out."""

    seed: int
    domain: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return " ".join([str(self.seed), self.domain, *(f"{step.construct}:{step.seed}" for step in self.steps)])


def recipe_from(text: str) -> Recipe:
    """The recipe that was printed as this text.

    >>> str(recipe_from("7 F layer:1 act:2"))
    '7 F layer:1 act:2'
    """
    seed, domain, *steps = text.split()
    pairs = (step.split(":") for step in steps)
    return Recipe(int(seed), domain, tuple(Step(construct, int(number)) for construct, number in pairs))


def random_recipe(seed: int, most_steps: int, leave_out: frozenset[str] = frozenset()) -> Recipe:
    """A recipe for this seed, without the named constructs."""
    rng = random.Random(seed)
    domain = rng.choice((FLAT, SEQUENCE, IMAGE))
    source = Source(domain)
    steps: list[Step] = []
    first = "layer_act"  # units to begin with
    for _ in range(rng.randint(2, most_steps) + 1):
        for _ in range(50):
            family = FAMILIES[rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]]
            step = Step(first or rng.choice(list(family)), rng.randrange(2**31))
            if step.construct not in leave_out and source.add(step):
                steps.append(step)
                break
        first = ""
    return Recipe(seed, domain, tuple(steps))


class _Names(dict[str, Any]):
    """What is filled in for one step; layers are written when they are asked for."""

    def __missing__(self, name: str) -> str:
        plain, sizes = name.startswith("plain_"), name.removeprefix("plain_").replace("2D", "_")
        before, after = (2 * self["D"] if size == "_" else self[size] for size in sizes)
        bias = "" if plain or self["rng"].random() < 0.7 else ", bias=False"
        if self["domain"] != IMAGE:
            return f"nn.Linear({before}, {after}{bias})"
        if plain or self["rng"].random() < 0.5:
            return f"nn.Conv2d({before}, {after}, 1{bias})"
        return f"nn.Conv2d({before}, {after}, 3, padding=1{bias})"


@dataclass
class Source:
    """The source of a module while it is written, and what flows at its end."""

    domain: str
    width: int = 5
    tokens: int = 3
    first_domain: str = field(init=False)
    init: list[str] = field(default_factory=list)
    forward: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.first_domain = self.domain

    def add(self, step: Step) -> bool:
        """Write one step, if it fits here."""
        construct, names = GRAMMAR[step.construct], self._names(random.Random(step.seed))
        if not construct.fits(self.domain, names):
            return False
        width = construct.number(construct.width, names)
        if not 2 <= width <= _WIDEST:
            return False
        self.forward += construct.forward.format_map(names).splitlines()
        self.init += construct.init.format_map(names).splitlines()
        self.tokens = construct.number(construct.length, names)
        self.width, self.domain = width, construct.to or self.domain
        return True

    def _names(self, rng: random.Random) -> _Names:
        width, place, number = self.width, 2 if self.domain == SEQUENCE else 1, len(self.forward)
        names = _Names(rng=rng, domain=self.domain, c=place, C=width, T=self.tokens)
        names["D"], names["E"] = rng.choice(_WIDTHS), rng.choice(_WIDTHS)
        names["k"] = rng.randint(1, width - 1)
        names["g"] = rng.choice([part for part in range(2, width + 1) if width % part == 0])
        names["n"] = rng.choice((f"h.shape[{place}]", f"h.shape[{place}]", f"h.size({place})", str(width)))
        names["ix"] = "..., " if self.domain == SEQUENCE else ":, "
        names["M"] = width + names["D"]
        names["pool"], names["back"] = (".mean((2, 3))", "[..., None, None]") if self.domain == IMAGE else ("", "")
        names["up"] = ".view(-1, 1, 1)" if self.domain == IMAGE else ""
        names["call"] = "F.conv2d" if self.domain == IMAGE else "F.linear"
        names["act"] = rng.choice(("torch.relu", "torch.tanh", "F.gelu", "F.silu", "torch.sigmoid"))
        names["norm"] = rng.choice(_norms(self.domain, width))
        names |= {name: f"{name}{number}" for name in "abduvw"}
        return names

    def text(self) -> str:
        """The class as Python source."""
        pooled = "h.mean((2, 3))" if self.domain == IMAGE else "h"
        init = ["super().__init__()", *self.init, f"self.head = nn.Linear({self.width}, 3)"]
        outputs = any("outputs" in line for line in self.forward)
        result = f"return [self.head({pooled}), *outputs]" if outputs else f"return self.head({pooled})"
        forward = [*(["outputs = []"] if outputs else []), *self.forward, result]
        methods = ("def __init__(self):", init), ("def forward(self, h):", forward)
        parts = [f"    {head}\n" + textwrap.indent("\n".join(lines), " " * 8) for head, lines in methods]
        return "class Model(nn.Module):\n" + "\n\n".join(parts) + "\n"

    def inputs(self) -> tuple[Tensor, ...]:
        shape = {FLAT: (4, 5), SEQUENCE: (2, 3, 5), IMAGE: (2, 5, 4, 4)}[self.first_domain]
        return (torch.randn(shape, dtype=torch.float64),)


def _norms(domain: str, width: int) -> list[str]:
    if domain == IMAGE:
        groups = [f"nn.GroupNorm({parts}, {width})" for parts in (1, 2, 3) if width % parts == 0]
        return [f"nn.BatchNorm2d({width})", f"nn.InstanceNorm2d({width}, affine=True)", *groups]
    return [f"nn.LayerNorm({width})", f"nn.RMSNorm({width})", *([f"nn.BatchNorm1d({width})"] * (domain == FLAT))]


_GLOBALS = {
    "F": F,
    "SimpleNamespace": SimpleNamespace,
    "functools": functools,
    "math": math,
    "nn": nn,
    "np": np,
    "parametrizations": parametrizations,
    "torch": torch,
    **HELPERS,
}


def source_of(recipe: Recipe) -> Source:
    source = Source(recipe.domain)
    for step in recipe.steps:
        source.add(step)
    return source


def build(recipe: Recipe) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The module in double precision, with no parameter left at a constant, and inputs for it."""
    source = source_of(recipe)
    file = f"<fuzzed module {recipe.seed}>"
    text = source.text()
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # for tracebacks
    scope: dict[str, Any] = dict(_GLOBALS)
    exec(compile(text, file, "exec"), scope)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(recipe.seed)
        model: nn.Module = scope["Model"]().double()
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        return model, source.inputs()
