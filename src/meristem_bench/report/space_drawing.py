"""The layers of a space as rows of bars: what each reads and makes, cut into the groups that own it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any, TypeVar

from meristem.space.paths import ancestors
from meristem_bench.report.group_legend import BarSegment, GroupLegend, ranges
from meristem_bench.report.page_text import breakable, counted

Item = TypeVar("Item")

_TIMES = "\u00d7"
_NUMBERED = 6  # a bar of more segments has the groups' numbers beside it instead
_ALIKE = 6  # a sequence of so many similar items is folded
_REASON = 110  # characters of a reason in a row; the whole of it stands further down


@dataclass(frozen=True)
class LayerBlock:
    """Layers that follow one another and share a path; ``path`` is empty for a layer on its own."""

    path: str
    stage: int
    layers: tuple[tuple[int, Mapping[str, Any]], ...]  # with their places among all layers


@dataclass(frozen=True)
class SpaceDrawing:
    """The layers as HTML: one row each, by stage and block."""

    legend: GroupLegend
    widest: int
    reasons: Mapping[str, Sequence[str]]  # why a module's units may not change
    absent: Mapping[str, str]  # path of a block that may be absent: its group

    def rows(self, layers: Sequence[Mapping[str, Any]]) -> str:
        """All layers, stage by stage and block by block."""
        all_blocks = layer_blocks(layers, self.absent)
        stages = [list(part) for _, part in groupby(all_blocks, key=lambda block: block.stage)]
        if all(len(stage) == 1 for stage in stages):  # every stage is one block: no need to show both
            return f'<section class="stage">{self._blocks(all_blocks)}</section>'
        return "".join(self._stage(number, stage) for number, stage in enumerate(stages, 1))

    def _stage(self, number: int, stage: Sequence[LayerBlock]) -> str:
        layers = [layer for block in stage for _, layer in block.layers]
        return (
            f'<section class="stage"><h3>Stage {number} <small>{counted(len(layers), "layer")}, '
            f"{sum(layer['params'] for layer in layers):,} parameters</small></h3>{self._blocks(stage)}</section>"
        )

    def _blocks(self, blocks: Sequence[LayerBlock]) -> str:
        return _folded(blocks, self._shape_key, self._block, self._summary)

    def _shape_key(self, block: LayerBlock) -> Hashable:
        """What is equal for blocks that are folded together."""
        rows = [(layer["module"][len(block.path) :], *layer["shape"]) for _, layer in block.layers]
        return (block.path in self.absent, *rows) if block.path else id(block)

    def _summary(self, hidden: Sequence[LayerBlock]) -> str:
        layers = [layer for block in hidden for _, layer in block.layers]
        params = sum(layer["params"] for layer in layers)
        first, last = escape(hidden[0].path), escape(hidden[-1].path)
        return (
            f"{len(hidden)} more blocks built alike, <b>{first}</b> to <b>{last}</b> "
            f"<small>{counted(len(layers), 'layer')}, {params:,} parameters</small>"
        )

    def _block(self, block: LayerBlock) -> str:
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
        return f'<div class="{kind}"><h4>{breakable(block.path)}{badge}</h4>{rows}</div>'

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
        outputs, inputs = self.legend.segments(layer["out"]), self.legend.segments(layer["in"])
        reasons = self.reasons.get(module, ())
        output_reasons = reasons if _fixed(outputs) else ()
        return (
            f'<div class="row" id="l{place}"><div class="what"><b title="{escape(module)}">{breakable(name)}</b>'
            f"<small>{kind}{shape}</small><small>{counted(layer['params'], 'parameter')}</small></div>"
            f'<div class="bars">{self._bar("reads", layer["in"]["size"], inputs, () if output_reasons else reasons)}'
            f"{self._bar('makes', layer['out']['size'], outputs, output_reasons)}</div></div>"
        )

    def _bar(self, verb: str, size: int, parts: Sequence[BarSegment], reasons: Sequence[str]) -> str:
        why = "; ".join(dict.fromkeys(reasons)) if _fixed(parts) else ""
        many = len(parts) > _NUMBERED
        cells = "".join(self._segment(part, not many, verb, why) for part in parts)
        length = 100 * math.sqrt(size / self.widest)
        notes = f'<p class="why">{escape(_short(why))}</p>' if why else ""
        if many:
            numbers = {str(self.legend.numbers[group]) for part in parts for group in part.groups}
            notes = f'<p class="why">groups {ranges(sorted(numbers)).strip("[]").replace(",", ", ")}</p>{notes}'
        return (
            f'<div class="line"><i>{verb}</i><div class="track"><div class="bar" style="width:{length:.1f}%">{cells}'
            f"</div><span>{size:,}</span></div></div>{notes}"
        )

    def _segment(self, part: BarSegment, numbered: bool, verb: str, why: str) -> str:
        share = f"flex-grow:{part.positions:g}"
        if not part.groups:
            why = why or ("an input of the model, or made by what is pinned" if verb == "reads" else "fixed")
            tooltip = f"{part.positions:,.0f} that never change: {why}"
            return f'<span class="s fixed" style="{share}" title="{escape(tooltip)}"></span>'
        numbers = [str(self.legend.numbers[group]) for group in part.groups]
        colours = [self.legend.colours[group] for group in part.groups]
        tooltip = f"group {_TIMES.join(numbers)}: {self._units(part)}"
        text, style = _TIMES.join(numbers) if numbered else "", f"c{colours[0]}"
        if len(colours) > 1:
            style, text = "product", f"<em>{text}</em>" if text else ""
            share += ";background:" + _layered(colours)
        return (
            f'<a class="s {style}" href="#g{numbers[0]}" data-g="{" ".join(numbers)}" style="{share}" '
            f'title="{escape(tooltip)}">{text}</a>'
        )

    def _units(self, part: BarSegment) -> str:
        units = [self.legend.units[group] for group in part.groups]
        each = part.positions / math.prod(units)
        named = f" {_TIMES} ".join(f"{unit:,} of {group}" for unit, group in zip(units, part.groups, strict=True))
        return named if each == 1 else f"{named}, {each:g} positions each"


def layer_blocks(layers: Sequence[Mapping[str, Any]], absent: Collection[str]) -> list[LayerBlock]:
    """Successive layers by block. A block that changes the resolution stays whole, in the stage it ends in."""
    holders = _holders([layer["module"] for layer in layers], absent)
    blocks: list[LayerBlock] = []
    for path, run in groupby(enumerate(layers), key=lambda row: holders[row[0]]):
        rows = tuple(run)
        stages = {layer["stage"] for _, layer in rows}
        if path.rpartition(".")[2].isdigit() and len(stages) <= 2:
            stages = {max(stages)}
        for stage in sorted(stages):
            mine = rows if len(stages) == 1 else tuple(row for row in rows if row[1]["stage"] == stage)
            whole = path and (len(mine) > 1 or path in absent)
            blocks += [LayerBlock(path, stage, mine)] if whole else [LayerBlock("", stage, (row,)) for row in mine]
    return blocks


def _holders(modules: Sequence[str], absent: Collection[str]) -> list[str]:
    """For every module the block it lies in: one that may be absent, or the innermost numbered one of several layers.

    >>> _holders(["stem", "stages.0.0.conv1", "stages.0.0.se.0", "stages.0.0.se.2", "head"], ())
    ['', 'stages.0.0', 'stages.0.0', 'stages.0.0', '']
    """
    count: dict[str, int] = {}
    for module in modules:
        for prefix in ancestors(module):
            count[prefix] = count.get(prefix, 0) + 1
    holders = []
    for module in modules:
        shared = [prefix for prefix in ancestors(module) if count[prefix] > 1]
        numbered = [prefix for prefix in shared if prefix.rpartition(".")[2].isdigit()]
        named = [prefix for prefix in ancestors(module) if prefix in absent]
        holders.append((named or numbered[-1:] or shared[-1:] or [""])[0])
    return holders


def _folded(
    items: Sequence[Item],
    key: Callable[[Item], Hashable],
    draw: Callable[[Item], str],
    summary: Callable[[Sequence[Item]], str],
) -> str:
    """The items drawn; of many in a row with equal keys all but the first two and the last are folded away."""
    pieces: list[str] = []
    for _, run in groupby(items, key=key):
        same = list(run)
        if len(same) < _ALIKE:
            pieces += map(draw, same)
            continue
        hidden = "".join(map(draw, same[2:-1]))
        fold = f'<details class="fold"><summary>{summary(same[2:-1])}</summary>{hidden}</details>'
        pieces += [*map(draw, same[:2]), fold, draw(same[-1])]
    return "".join(pieces)


def _owned(layer: Mapping[str, Any]) -> list[bool]:
    """Whether any group owns what a layer makes and reads."""
    return [any(groups for _, groups in layer[side]["terms"]) for side in ("out", "in")]


def _fixed(parts: Sequence[BarSegment]) -> bool:
    return any(not part.groups for part in parts)


def _layered(colours: Sequence[int]) -> str:
    """A background of one layer for each colour, on top of each other."""
    step = 100 / len(colours)
    stops = ",".join(
        f"var(--c{colour}) {step * place:g}% {step * (place + 1):g}%" for place, colour in enumerate(colours)
    )
    return f"linear-gradient({stops})"


def _short(text: str) -> str:
    return text if len(text) <= _REASON else text[: _REASON - 1].rstrip() + "\u2026"
