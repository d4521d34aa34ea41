"""One HTML page that needs nothing else: no network, no script; light or dark as the reader's system is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from meristem_bench.report.figure_style import INK, LINE, MUTED, SERIES, SERIES_DARK
from meristem_bench.report.page_text import legible


@dataclass(frozen=True)
class Table:
    """Rows of text; the first column is on the left, numbers are on the right."""

    title: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1  # how many columns are words; the others are numbers


@dataclass(frozen=True)
class PageFigure:
    """A figure as it stands in the page."""

    name: str
    title: str
    caption: str
    svg: str
    tall: bool


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it; a ``folded`` section is closed until the reader opens it."""

    title: str
    parts: tuple[PageFigure | Table, ...]
    folded: bool = False


def page(title: str, about: str, remarks: Sequence[str], sections: Sequence[Section]) -> str:
    """The whole page; ``remarks`` are sentences about what is missing."""
    body = [f"<header><h1>{_text(title)}</h1><p>{_text(about)}</p></header>"]
    if remarks:
        items = "".join(f"<li>{_text(remark)}</li>" for remark in remarks)
        body.append(f'<section class="remarks"><h2>What is not here</h2><ul>{items}</ul></section>')
    body += [_section(section) for section in sections]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{_text(title)}</title><style>{STYLE}</style></head>\n"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def _text(text: str) -> str:
    return escape(legible(text))


def _section(section: Section) -> str:
    inside = "".join(_figure(part) if isinstance(part, PageFigure) else _table(part) for part in section.parts)
    inside = f'<div class="parts">{inside}</div>'
    if section.folded:
        return f"<details><summary><h2>{_text(section.title)}</h2></summary>{inside}</details>"
    return f"<section><h2>{_text(section.title)}</h2>{inside}</section>"


def _figure(figure: PageFigure) -> str:
    kind = ' class="tall"' if figure.tall else ""
    return (
        f'<figure{kind} id="{_text(figure.name)}"><h3>{_text(figure.title)}</h3>{figure.svg}'
        f"<figcaption>{_text(figure.caption)}</figcaption></figure>\n"
    )


def _table(table: Table) -> str:
    head = _row("th", table.head, table.words)
    rows = "".join(_row("td", row, table.words) for row in table.rows)
    return (
        f'<div class="table"><h3>{_text(table.title)}</h3><p>{_text(table.caption)}</p>'
        f'<div class="scroll"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div></div>\n'
    )


def _row(cell: str, texts: Sequence[str], words: int) -> str:
    cells = (
        f"<{cell}>{_text(text)}</{cell}>" if column < words else f'<{cell} class="number">{_text(text)}</{cell}>'
        for column, text in enumerate(texts)
    )
    return f"<tr>{''.join(cells)}</tr>"


def _variables(ink: str, muted: str, line: str, paper: str, card: str, series: Sequence[str]) -> str:
    colours = ";".join(f"--c{number}:{colour}" for number, colour in enumerate(series))
    return f"--ink:{ink};--muted:{muted};--line:{line};--paper:{paper};--card:{card};{colours}"


STYLE = (
    f":root{{{_variables(INK, MUTED, LINE, '#f4f5f7', '#ffffff', SERIES)}}}"
    "@media(prefers-color-scheme:dark){:root{"
    f"{_variables('#e6e8ec', '#a2a9b6', '#3d434e', '#14161a', '#1d2026', SERIES_DARK)}}}}}"
    """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
body{overflow-wrap:anywhere}
main{max-width:1240px;margin:0 auto;padding:1.2rem}
h1{font-size:1.6rem;margin:.2rem 0}
h2{font-size:1.2rem;margin:1.6rem 0 .6rem}
h3{font-size:1rem;margin:0 0 .4rem}
p{margin:.2rem 0 .6rem}
header p,figcaption,.table p{color:var(--muted)}
figcaption,.table p{font-size:.88rem;max-width:75ch}
.parts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:1rem;align-items:start}
figure,.table,.remarks{margin:0;padding:.9rem;min-width:0;background:var(--card);border:1px solid var(--line)}
figure,.table,.remarks{border-radius:10px}
.remarks{border-left:5px solid var(--c4)}
.remarks h2{margin:0 0 .3rem;font-size:1rem}
.remarks ul{margin:0;padding-left:1.2rem}
.table{grid-column:1/-1}
figure svg{display:block;width:100%;height:auto;max-height:80vh}
figure.tall svg{max-height:none;max-width:760px;margin:0 auto}
figure.tall{grid-column:1/-1}
figure image{image-rendering:pixelated}
.scroll{overflow:auto;max-height:36rem}
table{border-collapse:collapse;font-size:.88rem;width:100%}
th,td{padding:.25rem .6rem;text-align:left;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--muted);font-weight:600;position:sticky;top:0;background:var(--card)}
.number{text-align:right;font-variant-numeric:tabular-nums}
summary{cursor:pointer}
summary h2{display:inline-block}
@media(max-width:520px){main{padding:.6rem}figure,.table,.remarks{padding:.6rem}}
"""
)
