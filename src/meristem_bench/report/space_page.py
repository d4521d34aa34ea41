"""The configuration space as one HTML page that needs nothing else: no network, no script, no plotting library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from meristem_bench.report.group_legend import GroupLegend, brief, group_legend
from meristem_bench.report.page_text import breakable, counted
from meristem_bench.report.space_drawing import SpaceDrawing
from meristem_bench.report.space_style import SCRIPT, STYLE

_ROWS = 60  # of the table of groups; the rest is folded
_NAMES = 12  # of the modules that make, pass or read a group, in short form


def space_page(content: Mapping[str, Any], title: str) -> str:
    """A page that draws what :func:`meristem.space.outline.outline` gives."""
    legend = group_legend(content)
    sizes = [layer[side]["size"] for layer in content["layers"] for side in ("in", "out")]
    reasons: dict[str, list[str]] = {}
    for each in content["pinned"]:
        reasons.setdefault(each["name"], []).append(each["reason"])
    absent = {path: group for stage in content["stages"] for group, path in stage["blocks"]}
    drawing = SpaceDrawing(legend, max(sizes, default=1), reasons, absent)
    body = (
        f"<h1>{escape(title)}</h1>"
        '<p class="lead">What in this network may grow and shrink, what belongs together, and what has to stay.</p>'
        + _facts(content)
        + _layers(content, drawing)
        + _groups(content["groups"], drawing, _first_rows(content["layers"], legend))
        + _stages(content["stages"])
        + _pinned(content["pinned"])
        + _notes(content["notes"])
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>{body}"
        f"<footer>Made by meristem trace.</footer><script>{SCRIPT}</script></body></html>\n"
    )


def _facts(content: Mapping[str, Any]) -> str:
    facts = []
    for name, key in (("parameters", "params"), ("multiply-adds", "macs")):
        if content[key]:
            small, full = content[key]
            share = f"; the full one is {full / small:,.0f} times the smallest" if small else ""
            facts.append((name, f"{small:,} to {full:,}<small>smallest to full network{share}</small>"))
    free = content.get("free_params_frac")
    if free is not None:
        meter = f'<div class="meter"><i style="width:{free:.1%}"></i><i class="fixed" style="flex:1"></i></div>'
        facts.append(("free", f"{_share(free)}{meter}<small>of the parameters lie in groups that may change</small>"))
    blocks = sum(group["kind"] == "depth" for group in content["groups"])
    groups = len(content["groups"]) - blocks
    pinned = len(content["pinned"])
    structure = f"{counted(groups, 'group')} in {counted(len(content['layers']), 'layer')}"
    more = [counted(blocks, "block") + " may be absent"] if blocks else []
    more.append(counted(pinned, "place") + " pinned" if pinned else "nothing pinned")
    facts.append(("structure", f"{structure}<small>{', '.join(more)}</small>"))
    cells = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{cells}</dl>'


def _layers(content: Mapping[str, Any], drawing: SpaceDrawing) -> str:
    if not content["layers"]:
        return "<h2>The network</h2><p>It has no layer with a weight of two dimensions or more.</p>"
    key = [
        ('<span class="s c0">3</span>', "units of group 3"),
        (
            '<span class="s fixed"></span>',
            "never changes; the reason stands beside it, or shows when it is pointed at",
        ),
    ]
    parts = [drawing.legend.segments(layer[side]) for layer in content["layers"] for side in ("in", "out")]
    if any(len(part.groups) > 1 for bar in parts for part in bar):
        two = "background:linear-gradient(var(--c0) 50%,var(--c1) 50%)"
        key.append(
            (f'<span class="s" style="{two}"><em>3\u00d74</em></span>', "every unit of group 3 with every one of 4")
        )
    if content["stages"]:
        key.append(('<span class="s chip none">5</span>', "a block that may be absent, group 5; its bracket is dashed"))
    items = "".join(f"<li>{sample}<span>{text}</span></li>" for sample, text in key)
    return (
        "<h2>The network</h2><p>A row is a layer, in the order in which the model holds them, usually from input to "
        "output. Its bars show what it reads and what it makes, cut into the groups that own it. What has the same "
        "number grows and shrinks together, wherever it is; colours repeat, numbers do not. A bar is as long as the "
        f'square root of its width: four times as wide is twice as long.</p><ul class="key">{items}</ul>'
        f"{drawing.rows(content['layers'])}"
    )


def _first_rows(layers: Sequence[Mapping[str, Any]], legend: GroupLegend) -> dict[str, int]:
    """The first row that shows each group: one that makes it, if there is one."""
    first: dict[str, int] = {}
    for side in ("out", "in"):
        for place, layer in enumerate(layers):
            for part in legend.segments(layer[side]):
                for group in part.groups:
                    first.setdefault(group, place)
    return first


def _groups(groups: Sequence[Mapping[str, Any]], drawing: SpaceDrawing, first: Mapping[str, int]) -> str:
    if not groups:
        return "<h2>Groups</h2><p>There are none: nothing in this network may change.</p>"
    footnote = ""
    if any(group.get("mixes_units") for group in groups):
        footnote = " *: a norm, mean or softmax mixes the units, so what one computes depends on which others live."
    rows = [_group(group, drawing, first) for group in groups]
    more = ""
    if len(rows) > _ROWS:
        more = (
            f'<details class="fold"><summary>{len(rows) - _ROWS} more groups, {_ROWS + 1} to {len(rows)}</summary>'
            f"{_table(rows[_ROWS:])}</details>"
        )
    return (
        "<h2>Groups</h2><p>The units of a group live and die together with all they own in every module named here. A "
        f"group's share counts the parameters that its units own, alone or with other groups.{footnote}</p>"
        f"{_table(rows[:_ROWS])}{more}"
    )


def _table(rows: Sequence[str]) -> str:
    return (
        '<table><thead><tr><th></th><th>group</th><th>kind</th><th class="n">units</th><th class="n">parameters</th>'
        f"<th>made by</th><th>passes</th><th>read by</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _group(group: Mapping[str, Any], drawing: SpaceDrawing, first: Mapping[str, int]) -> str:
    name = group["name"]
    title = breakable(name)
    if name in first:
        title = f'<a href="#l{first[name]}">{title}</a>'
    kind = group["kind"] + (" *" if group.get("mixes_units") else "")
    coupled = "".join(
        f'<td data-l="{label}">{_names(group[key])}</td>' if group[key] else "<td></td>"
        for label, key in (("made by", "makers"), ("passes", "along"), ("read by", "readers"))
    )
    return (
        f'<tr id="g{drawing.legend.numbers[name]}"><td class="h">{drawing.chip(name)}</td><td class="h">{title}</td>'
        f'<td data-l="kind" class="kind h">{escape(kind)}</td><td data-l="units" class="n h">{group["units"]:,}</td>'
        f'<td data-l="parameters" class="n h">{group["params_frac"]:.1%}</td>{coupled}</tr>'
    )


def _stages(stages: Sequence[Mapping[str, Any]]) -> str:
    if not stages:
        return ""
    rows = "".join(
        f"<dt>{breakable(stage['name'])}</dt><dd>{counted(len(stage['blocks']), 'block')} may be absent: "
        f"{_names([path for _, path in stage['blocks']])}; {stage['fixed']} always there</dd>"
        for stage in stages
    )
    return (
        "<h2>Blocks that may be absent</h2><p>A block is left out or put back as a whole, and what is inside it counts "
        f'only while it is there.</p><dl class="pins">{rows}</dl>'
    )


def _pinned(pinned: Sequence[Mapping[str, Any]]) -> str:
    if not pinned:
        return "<h2>Pinned</h2><p>Nothing: all that is made in this network may change.</p>"
    places: dict[str, dict[int, list[str]]] = {}
    for each in pinned:
        places.setdefault(each["reason"], {}).setdefault(each["units"], []).append(each["name"])
    rows = "".join(
        f"<dt>{escape(reason)}</dt><dd>"
        + "; ".join(
            f"{_names(names)} ({counted(units, 'unit')}{' each' * (len(names) > 1)})" for units, names in by.items()
        )
        + "</dd>"
        for reason, by in places.items()
    )
    return (
        "<h2>Pinned</h2><p>What is made here may not change; the reason stands above the places.</p>"
        f'<dl class="pins">{rows}</dl>'
    )


def _notes(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<h2>Notes</h2><ul>{items}</ul>" if notes else ""


def _names(names: Sequence[str]) -> str:
    short = brief(names)
    listed = ", ".join(map(breakable, short[:_NAMES]))
    return listed + (f" and {len(short) - _NAMES} more" if len(short) > _NAMES else "")


def _share(frac: float) -> str:
    """
    >>> _share(0.5), _share(0.9999), _share(1.0)
    ('50.0%', 'more than 99.9%', '100%')
    """
    if frac == 1.0:
        return "100%"
    return "more than 99.9%" if frac > 0.999 else f"{frac:.1%}"
