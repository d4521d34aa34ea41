"""``meristem trace``: what in a model may grow and shrink, and what it costs."""

from __future__ import annotations

import argparse
import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from meristem.cost.count import cost_at
from meristem.errors import MeristemError
from meristem.io.atomic import replace_file
from meristem.space.outline import outline
from meristem.space.space import Space
from meristem.surgery.live import Live
from meristem.testing import masked_reference
from meristem.tracing.trace import trace
from meristem_bench.recipes.lookup import find_model
from meristem_bench.report.space_page import space_page


def show(args: argparse.Namespace) -> int:
    page = _page_path(args.html) if args.html is not None else None
    name = args.model or "meristem_bench.models.resnet_cifar:resnet20"
    model = find_model(name)()
    if args.model and not args.input:
        raise MeristemError(
            "--model needs --input, the shape of what the model is called with, e.g. --input 1x3x224x224"
        )
    shapes = args.input or ["1x3x32x32"]
    inputs = tuple(_example(shape) for shape in shapes)
    space = trace(model, inputs, pin=args.pin, strict=args.strict, depth=args.depth, frozen=args.frozen)
    print(space)
    if page is not None:
        text = space_page(outline(space, model), f"{name.rpartition(':')[2]}, input {', '.join(shapes)}")
        _write(page, text)
        print(f"\nThe page of the space is {page}")
    if not args.model:
        print()
        _demonstrate(model, space, inputs)
    return 0


def _page_path(text: str) -> Path:
    """Where the page goes; checked before the model is traced, which may take a while."""
    path = Path(text)
    if not text or path.is_dir():
        raise MeristemError(f"--html {text!r} is not a file name; write one, e.g. --html space.html")
    if not path.parent.is_dir():
        raise MeristemError(f"--html {text}: there is no folder {path.parent}; make it first")
    return path


def _write(path: Path, text: str) -> None:
    try:
        replace_file(path, lambda beside: beside.write_text(text, encoding="utf-8"))
    except OSError as error:
        raise MeristemError(f"--html {path} cannot be written ({error.strerror or error})") from None


def _example(text: str) -> Any:
    shape, _, kind = text.partition(":")
    try:
        sizes = [int(size) for size in shape.split("x")]
    except ValueError:
        raise MeristemError(f"--input {text!r} is not a shape; write it like 1x3x224x224 or 2x35:int") from None
    if kind == "int":
        return torch.zeros(sizes, dtype=torch.long)
    if kind:
        raise MeristemError(f"--input {text!r}: the kind after the colon can only be 'int'")
    return torch.randn(sizes, generator=torch.Generator().manual_seed(0))


def _demonstrate(model: nn.Module, space: Space, inputs: tuple[Any, ...]) -> None:
    """Resize the model a few times and compare it with the masked full-size one."""
    full = copy.deepcopy(model).double().eval()
    live = Live(model.double().eval(), space)
    x = tuple(value.double() for value in inputs)
    random = np.random.default_rng(0)
    print("Resized in memory, compared with the full-size network in which the same units are masked:")
    print(f"{'':24}{'parameters':>12}{'macs':>14}{'largest difference':>22}")
    for title, share in (
        ("all units", 1.0),
        ("half, at random", 0.5),
        ("one in each group", 0.0),
        ("36 %, at random", 0.36),
    ):
        target = {
            name: random.permutation(group.units)[: max(1, round(share * group.units))].tolist()
            for name, group in space.groups.items()
        }
        live.apply(live.plan(target))
        with torch.no_grad():
            mine = model(*x)
            reference = masked_reference(full, space, live.masks, x).outputs[0]
        cost = cost_at(space, live.widths)
        difference = float((mine - reference.detach()).abs().max())
        print(f"{title:24}{cost.params:>12,}{cost.macs:>14,}{difference:>22.1e}")
