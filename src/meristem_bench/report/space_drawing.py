"""The layers of a space as rows of bars: what each reads and makes, cut into the groups that own it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any, TypeVar

from meristem_bench.report.legend import Legend, Segment, ranges

Item = TypeVar("Item")

_TIMES = "\u00d7"
_NUMBERED = 6  # a bar of more segments has the groups' numbers beside it instead
_ALIKE = 6  # so many items built alike in a row are folded
_REASON = 110  # characters of a reason in a row; the whole of it stands further down


@dataclass(frozen=True)
class Block:
    """Layers that follow one another and share a path; ``path`` is empty for a layer on its own."""

    path: str
    stage: int
    layers: tuple[tuple[int, Mapping[str, Any]], ...]  # with their places in the whole


@dataclass(frozen=True)
class Drawing:
    """What every row needs to know of the whole."""

    legend: Legend
    widest: int
    reasons: Mapping[str, Sequence[str]]  # why a module's units may not change
    absent: Mapping[str, str]  # path of a block that may be absent: its group

    def rows(self, layers: Sequence[Mapping[str, Any]]) -> str:
        """All layers, stage by stage and block by block."""
        found = blocks(layers, self.absent)
        stages = [list(part) for _, part in groupby(found, key=lambda block: block.stage)]
        if all(len(stage) == 1 for stage in stages):  # stages are but the blocks: nothing to gather
            return f'<section class="stage">{self._blocks(found)}</section>'
        return "".join(self._stage(number, stage) for number, stage in enumerate(stages, 1))

    def _stage(self, number: int, stage: Sequence[Block]) -> str:
        layers = [layer for block in stage for _, layer in block.layers]
        return (
            f'<section class="stage"><h3>Stage {number} <small>{_count(len(layers), "layer")}, '
            f"{sum(layer['params'] for layer in layers):,} parameters</small></h3>{self._blocks(stage)}</section>"
        )

    def _blocks(self, found: Sequence[Block]) -> str:
        return _folded(found, self._alike, self._block, self._summary)

    def _alike(self, block: Block) -> Hashable:
        rows = [(layer["module"][len(block.path) :], *layer["shape"]) for _, layer in block.layers]
        return (block.path in self.absent, *rows) if block.path else id(block)

    def _summary(self, hidden: Sequence[Block]) -> str:
        layers = [layer for block in hidden for _, layer in block.layers]
        params = sum(layer["params"] for layer in layers)
        first, last = escape(hidden[0].path), escape(hidden[-1].path)
        return (
            f"{len(hidden)} more blocks built alike, <b>{first}</b> to <b>{last}</b> "
            f"<small>{_count(len(layers), 'layer')}, {params:,} parameters</small>"
        )

    def _block(self, block: Block) -> str:
        rows = _folded(
            block.layers,
            lambda row: (*row[1]["shape"], *_owned(row[1])),
            lambda row: self._row(*row, block.path),
            lambda hidden: f"{len(hidden)} more layers of the same shape",
        )
        if not block.path:
            return rows
        group = self.absent.get(block.path)
        badge = "" if group is None else f' <span class="badge">{self.chip(group)} may be absent</span>'
        kind = "block" if group is None else "block absent"
        return f'<div class="{kind}"><h4>{_broken(block.path)}{badge}</h4>{rows}</div>'

    def chip(self, group: str) -> str:
        """The number of a group on its colour; it leads to the group's row in the table."""
        number, colour = self.legend.numbers[group], self.legend.colours.get(group)
        style = "none" if colour is None else f"c{colour}"
        return f'<a class="s chip {style}" href="#g{number}" data-g="{number}" title="{escape(group)}">{number}</a>'

    def _row(self, place: int, layer: Mapping[str, Any], path: str) -> str:
        module = layer["module"]
        name = module[len(path) + 1 :] if path else module
        shape = "\u2009x\u2009".join(map(str, layer["shape"]))
        kind = f"{escape(layer['type'])} " if "type" in layer else ""
        made, read = self.legend.segments(layer["out"]), self.legend.segments(layer["in"])
        reasons = self.reasons.get(module, ())
        why_made = reasons if _fixed(made) else ()
        return (
            f'<div class="row" id="l{place}"><div class="what"><b title="{escape(module)}">{_broken(name)}</b>'
            f"<small>{kind}{shape}</small><small>{_count(layer['params'], 'parameter')}</small></div>"
            f'<div class="bars">{self._bar("reads", layer["in"]["size"], read, () if why_made else reasons)}'
            f"{self._bar('makes', layer['out']['size'], made, why_made)}</div></div>"
        )

    def _bar(self, verb: str, size: int, parts: Sequence[Segment], reasons: Sequence[str]) -> str:
        why = "; ".join(dict.fromkeys(reasons)) if _fixed(parts) else ""
        many = len(parts) > _NUMBERED
        cells = "".join(self._segment(part, not many, verb, why) for part in parts)
        length = 100 * math.sqrt(size / self.widest)
        said = f'<p class="why">{escape(_short(why))}</p>' if why else ""
        if many:
            numbers = {str(self.legend.numbers[group]) for part in parts for group in part.groups}
            said = f'<p class="why">groups {ranges(sorted(numbers)).strip("[]").replace(",", ", ")}</p>{said}'
        return (
            f'<div class="line"><i>{verb}</i><div class="track"><div class="bar" style="width:{length:.1f}%">{cells}'
            f"</div><span>{size:,}</span></div></div>{said}"
        )

    def _segment(self, part: Segment, numbered: bool, verb: str, why: str) -> str:
        share = f"flex-grow:{part.positions:g}"
        if not part.groups:
            why = why or ("an input of the model, or made by what is pinned" if verb == "reads" else "fixed")
            told = f"{part.positions:,.0f} that never change: {why}"
            return f'<span class="s fixed" style="{share}" title="{escape(told)}"></span>'
        numbers = [str(self.legend.numbers[group]) for group in part.groups]
        colours = [self.legend.colours[group] for group in part.groups]
        told = f"group {_TIMES.join(numbers)}: {self._told(part)}"
        text, style = _TIMES.join(numbers) if numbered else "", f"c{colours[0]}"
        if len(colours) > 1:
            style, text = "product", f"<em>{text}</em>" if text else ""
            share += ";background:" + _layered(colours)
        return (
            f'<a class="s {style}" href="#g{numbers[0]}" data-g="{" ".join(numbers)}" style="{share}" '
            f'title="{escape(told)}">{text}</a>'
        )

    def _told(self, part: Segment) -> str:
        units = [self.legend.units[group] for group in part.groups]
        each = part.positions / math.prod(units)
        named = f" {_TIMES} ".join(f"{unit:,} of {group}" for unit, group in zip(units, part.groups, strict=True))
        return named if each == 1 else f"{named}, {each:g} positions each"


def blocks(layers: Sequence[Mapping[str, Any]], absent: Collection[str]) -> list[Block]:
    """Runs of layers of one block. One that changes the resolution is of the stage it ends in, and stays whole."""
    holders = _holders([layer["module"] for layer in layers], absent)
    found = []
    for path, run in groupby(enumerate(layers), key=lambda row: holders[row[0]]):
        rows = tuple(run)
        stages = {layer["stage"] for _, layer in rows}
        if path.rpartition(".")[2].isdigit() and len(stages) <= 2:
            stages = {max(stages)}
        for stage in sorted(stages):
            mine = rows if len(stages) == 1 else tuple(row for row in rows if row[1]["stage"] == stage)
            whole = path and (len(mine) > 1 or path in absent)
            found += [Block(path, stage, mine)] if whole else [Block("", stage, (row,)) for row in mine]
    return found


def _holders(modules: Sequence[str], absent: Collection[str]) -> list[str]:
    """For every module the block it lies in: one that may be absent, or the innermost numbered one of several layers.

    >>> _holders(["stem", "stages.0.0.conv1", "stages.0.0.se.0", "stages.0.0.se.2", "head"], ())
    ['', 'stages.0.0', 'stages.0.0', 'stages.0.0', '']
    """
    count: dict[str, int] = {}
    for module in modules:
        for prefix in _prefixes(module):
            count[prefix] = count.get(prefix, 0) + 1
    found = []
    for module in modules:
        shared = [prefix for prefix in _prefixes(module) if count[prefix] > 1]
        numbered = [prefix for prefix in shared if prefix.rpartition(".")[2].isdigit()]
        named = [prefix for prefix in _prefixes(module) if prefix in absent]
        found.append((named or numbered[-1:] or shared[-1:] or [""])[0])
    return found


def _prefixes(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def _folded(
    items: Sequence[Item],
    alike: Callable[[Item], Hashable],
    drawn: Callable[[Item], str],
    summary: Callable[[Sequence[Item]], str],
) -> str:
    """Draw items; of a long run of those that are built alike all but the first two and the last are folded away."""
    pieces: list[str] = []
    for _, run in groupby(items, key=alike):
        same = list(run)
        if len(same) < _ALIKE:
            pieces += map(drawn, same)
            continue
        hidden = "".join(map(drawn, same[2:-1]))
        fold = f'<details class="fold"><summary>{summary(same[2:-1])}</summary>{hidden}</details>'
        pieces += [*map(drawn, same[:2]), fold, drawn(same[-1])]
    return "".join(pieces)


def _owned(layer: Mapping[str, Any]) -> list[bool]:
    """Whether any group owns what a layer makes and reads."""
    return [any(groups for _, groups in layer[side]["terms"]) for side in ("out", "in")]


def _fixed(parts: Sequence[Segment]) -> bool:
    return any(not part.groups for part in parts)


def _layered(colours: Sequence[int]) -> str:
    """A background of one layer for each colour, on top of each other."""
    step = 100 / len(colours)
    stops = ",".join(
        f"var(--c{colour}) {step * place:g}% {step * (place + 1):g}%" for place, colour in enumerate(colours)
    )
    return f"linear-gradient({stops})"


def _broken(path: str) -> str:
    """A path that may be broken after its dots."""
    return escape(path).replace(".", ".<wbr>")


def _short(text: str) -> str:
    return text if len(text) <= _REASON else text[: _REASON - 1].rstrip() + "\u2026"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
