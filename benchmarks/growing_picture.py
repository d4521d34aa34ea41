"""An animated SVG of a network while it grew: the live units of every layer, epoch by epoch, from the record of a run.

    python benchmarks/growing_picture.py runs/vgg16 docs/figures/growing.svg --title "VGG-16 on CIFAR-10"

It needs no script in the page and follows the reader's light or dark colours.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

WIDTH, TOP, BAR, GAP, LEFT, RIGHT = 720, 58, 15, 5, 16, 70
SECONDS_OF_CHANGE, SECONDS_OF_REST, SECONDS_AT_END = 0.9, 0.15, 4.0  # of an epoch that changes widths, or not
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f } .big { font-size: 16px; font-weight: 600 }
.count { font-size: 11px; fill: #57606a } .room { fill: #d8dee4 } .live { fill: #1a7f37 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .count { fill: #9198a1 } .room { fill: #30363d } .live { fill: #3fb950 }
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="the folder of a finished run")
    parser.add_argument("out", type=Path, help="the SVG to write")
    parser.add_argument("--title", default="", help="what is grown, and on what")
    args = parser.parse_args()
    records = [json.loads(line) for line in (args.run / "history.jsonl").read_text(encoding="utf-8").splitlines()]
    groups = json.loads((args.run / "space.json").read_text(encoding="utf-8"))["groups"]
    full = {group["name"]: group["units"] for group in groups}
    args.out.write_text(picture(records, full, args.title), encoding="utf-8")


def picture(records: Sequence[Mapping[str, Any]], full: Mapping[str, int], title: str) -> str:
    """The whole SVG. Every layer has a grey bar, its full width, and a green one, its live units."""
    times = Times([record["widths"] for record in records])
    height = TOP + len(full) * (BAR + GAP) + 12
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
        f"<title>{escape(title)}, growing</title><style>{STYLE}</style>",
        f'<text class="big" x="{LEFT}" y="22">{escape(title)}</text>',
        *_captions(records, times),
    ]
    scale = (WIDTH - LEFT - RIGHT) / max(full.values())
    for row, (layer, units) in enumerate(full.items()):
        y = TOP + row * (BAR + GAP)
        widths = [record["widths"][layer] for record in records]
        ends = [f"{width * scale:.1f}" for width in widths]
        lines += [
            f'<rect class="room" x="{LEFT}" y="{y}" width="{units * scale:.1f}" height="{BAR}" rx="2"/>',
            f'<rect class="live" x="{LEFT}" y="{y}" width="{ends[-1]}" height="{BAR}" rx="2">'
            f'<animate attributeName="width" {times.values(ends)}/></rect>',
            f'<text class="count" x="{LEFT + units * scale + 6:.1f}" y="{y + 12}">{widths[-1]} of {units}</text>',
        ]
    return "\n".join([*lines, "</svg>\n"])


class Times:
    """When each epoch is shown: one after the other, the last for a while, then again from the start."""

    def __init__(self, widths: Sequence[Mapping[str, int]]) -> None:
        changes = [SECONDS_OF_REST if now == then else SECONDS_OF_CHANGE for now, then in pairwise(widths)]
        ends = list(accumulate(changes, initial=0.0))
        self.total = ends[-1] + SECONDS_AT_END
        self.starts = [end / self.total for end in ends]

    def values(self, values: Sequence[str]) -> str:
        """The attributes of an animation that moves from value to value."""
        times = ";".join(f"{start:.4f}" for start in (*self.starts, 1.0))
        return (
            f'values="{";".join((*values, values[-1]))}" keyTimes="{times}" dur="{self.total:.1f}s" '
            f'repeatCount="indefinite"'
        )

    def shown(self, epoch: int) -> str:
        """The attributes of an animation of opacity that shows something during one epoch alone."""
        start = self.starts[epoch]
        end = self.starts[epoch + 1] if epoch + 1 < len(self.starts) else 1.0
        times = dict([(0.0, 0), (start, 1), (end, 0), (1.0, 0)] if end < 1.0 else [(0.0, 0), (start, 1), (1.0, 1)])
        keys, opacities = ";".join(f"{time:.4f}" for time in times), ";".join(map(str, times.values()))
        return f'values="{opacities}" keyTimes="{keys}" dur="{self.total:.1f}s" repeatCount="indefinite"'


def _captions(records: Sequence[Mapping[str, Any]], times: Times) -> Iterator[str]:
    """A line per epoch, of which one shows at a time; the last one where nothing moves."""
    for index, record in enumerate(records):
        last = index == len(records) - 1
        text = (
            f"epoch {record['epoch']} of {len(records)}: {record['params_frac']:.1%} of the parameters, "
            f"{record['macs_frac']:.1%} of the multiply-adds; training so far {record['spend_frac']:.1%} of dense"
        )
        animation = f'<animate attributeName="opacity" calcMode="discrete" {times.shown(index)}/>'
        yield f'<text x="{LEFT}" y="44" opacity="{1 if last else 0}">{escape(text)}{animation}</text>'


if __name__ == "__main__":
    main()
