"""The page of a space shows all that is in it, stands alone, and can be read on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser
from torch import nn

import meristem
from deep import DEEP
from meristem.space.outline import outline
from meristem_bench.cli import main
from meristem_bench.report.group_legend import COLOURS, group_legend
from meristem_bench.report.space_drawing import layer_blocks
from meristem_bench.report.space_page import space_page
from zoo import ZOO

SpaceOf = Callable[[str], meristem.Space]
NETS = ("resnext", "attention_hard_view", "lstm_lm", "densenet", "deep_residual")


def drawn(space_of: SpaceOf, name: str) -> tuple[dict[str, Any], str]:
    content = outline(space_of(name), (ZOO | DEEP)[name].build()[0])
    return content, space_page(content, f"the {name}")


class Page(HTMLParser):
    """What a browser would read: text, attributes, and whether every element is closed in its place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.open = "", list[str]()
        self.attributes: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in {"meta", "wbr"}:
            self.open.append(tag)
        for key, value in attrs:
            self.attributes.setdefault(key, []).append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("name", NETS)
def test_every_layer_group_and_reason_is_there(name: str, space_of: SpaceOf) -> None:
    content, text = drawn(space_of, name)
    page = Page(text)
    assert text.count('class="row"') == len(content["layers"])
    for layer in content["layers"]:
        assert layer["module"] in page.attributes["title"]
        assert layer["type"] in page.text
    for number, group in enumerate(content["groups"], 1):
        assert group["name"] in page.text
        assert f"g{number}" in page.attributes["id"]
        assert str(number) in page.attributes["data-g"]
    for pinned in content["pinned"]:
        assert pinned["reason"] in page.text
    for note in content["notes"]:
        assert note in page.text
    for low, high in (content["params"], content["macs"]):
        assert f"{low:,} to {high:,}" in page.text
    assert page.text.count("may be absent") >= sum(len(stage["blocks"]) for stage in content["stages"])


@pytest.mark.parametrize("name", NETS)
def test_the_page_stands_alone(name: str, space_of: SpaceOf) -> None:
    """Nothing is fetched from anywhere, and every link leads to a place on the page, of which there is one."""
    text = drawn(space_of, name)[1]
    page = Page(text)
    assert not re.search(r"https?:|//\w|@import|url\(|<(link|img|iframe)", text)
    assert "src" not in page.attributes
    assert len(set(page.attributes["id"])) == len(page.attributes["id"])
    assert {link[1:] for link in page.attributes["href"]} <= set(page.attributes["id"])
    assert all(link.startswith("#") for link in page.attributes["href"])


def test_bars_are_cut_as_the_layers_are(space_of: SpaceOf) -> None:
    """A grouped convolution reads and makes all its channels: rows and columns of groups, one product each."""
    content = outline(space_of("resnext"), ZOO["resnext"].build()[0])
    legend = group_legend(content)
    layer = next(layer for layer in content["layers"] if layer["module"] == "body.1.body.b.conv")
    assert [(part.positions, len(part.groups)) for part in legend.segments(layer["in"])] == [(16, 2)]
    for layer in content["layers"]:
        for side in ("in", "out"):
            assert sum(part.positions for part in legend.segments(layer[side])) == layer[side]["size"]


def test_a_fixed_depthwise_layer_reads_all_its_channels() -> None:
    model = nn.Sequential(nn.Conv2d(3, 3, 3, groups=3), nn.Conv2d(3, 4, 1))
    layer = outline(meristem.trace(model, torch.randn(1, 3, 8, 8)), model)["layers"][0]
    assert (layer["in"]["size"], layer["out"]["size"]) == (3, 3)


def layer(module: str, made: list[Any], read: list[Any], stage: int = 0) -> dict[str, Any]:
    sizes = [sum(16 if groups else int(factor) for factor, groups in terms) for terms in (made, read)]
    out, into = ({"size": size, "terms": terms} for size, terms in zip(sizes, (made, read), strict=True))
    return {"module": module, "shape": sizes, "params": sizes[0] * sizes[1], "out": out, "in": into, "stage": stage}


def chain(count: int, name: str = "blocks.{}.{}") -> dict[str, Any]:
    """Residual blocks of two layers, in which each has a group of its own, in plain data."""
    names = ["stem", *(name.format(number, "up") for number in range(count))]
    groups = [
        {"name": each, "units": 16, "kind": "width", "params_frac": 0.1, "makers": [each], "along": [], "readers": []}
        for each in names
    ]
    groups[0]["readers"] = names[1:]
    layers = [layer("stem", [[1.0, ["stem"]]], [[3.0, []]])]
    for number, inner in enumerate(names[1:]):
        layers.append(layer(inner, [[1.0, [inner]]], [[1.0, ["stem"]]]))
        layers.append(layer(name.format(number, "down"), [[1.0, ["stem"]]], [[1.0, [inner]]]))
    rest: dict[str, Any] = {"stages": [], "pinned": [], "notes": [], "params": [1, 2], "macs": None}
    return {"groups": groups, "layers": layers, **rest}


def test_six_hundred_blocks_are_folded_and_make_a_small_page() -> None:
    content = chain(600)
    text = space_page(content, "deep")
    assert len(text.encode()) < 3_000_000
    assert text.count('class="row"') == len(content["layers"]) == 1201
    unfolded = re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL)
    assert unfolded.count('class="row"') == 7, "the stem, two blocks, and the last"
    assert "597 more blocks built alike" in text


def test_names_are_escaped() -> None:
    bad = "<b>&\"'{}.{}"
    content = chain(2, bad)
    content["pinned"] = [{"name": bad, "units": 3, "reason": "</dl><script>alert(1)</script>"}]
    content["notes"] = ["a < b"]
    text = space_page(content, "<i>title</i>")
    page = Page(text)
    assert text.count("<script>") == 1
    assert "<i>title" not in text
    assert content["groups"][1]["name"] in page.text
    assert content["layers"][1]["module"] in map(unescape, page.attributes["title"])
    assert "a < b" in page.text


def test_colours_of_neighbours_differ_though_there_are_more_groups_than_colours() -> None:
    content = chain(5 * COLOURS)
    legend = group_legend(content)
    assert len(set(legend.numbers.values())) == 1 + 5 * COLOURS
    assert set(legend.colours.values()) == set(range(COLOURS))
    for one, next_one in zip(content["groups"][1:], content["groups"][2:], strict=False):
        assert legend.colours[one["name"]] not in (legend.colours[next_one["name"]], legend.colours["stem"])


def test_a_block_that_changes_the_resolution_stays_whole() -> None:
    modules = [("stages.0.conv", 0), ("stages.0.out", 0), ("stages.1.conv", 0), ("stages.1.out", 1), ("head", 1)]
    layers = [layer(module, [[4.0, []]], [[4.0, []]], stage) for module, stage in modules]
    blocks = [(block.path, block.stage, len(block.layers)) for block in layer_blocks(layers, ())]
    assert blocks == [("stages.0", 0, 2), ("stages.1", 1, 2), ("", 1, 1)]


def test_a_network_in_which_nothing_may_change_has_a_page() -> None:
    content = outline(meristem.trace(nn.Linear(4, 3), torch.randn(1, 4)))
    page = Page(space_page(content, "one layer"))
    assert "nothing in this network may change" in page.text
    assert "it is a model output" in page.text


# --- in a browser ---


def test_a_browser_shows_it_without_scrolling_sideways(browser: Browser, space_of: SpaceOf, tmp_path: Path) -> None:
    pages = {name: drawn(space_of, name) for name in ("attention_hard_view", "resnext", "deep_residual")}
    pages["chain"] = chain(40), space_page(chain(40), "forty blocks")
    seen: list[str] = []
    phone = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
    phone.on("console", lambda message: seen.append(message.text))
    phone.on("pageerror", lambda error: seen.append(str(error)))
    phone.on("request", lambda request: seen.append(request.url))
    for name, (content, text) in pages.items():
        file = tmp_path / f"{name}.html"
        file.write_text(text, encoding="utf-8")
        phone.goto(file.as_uri())
        assert seen.pop() == file.as_uri()
        phone.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert phone.evaluate("document.documentElement.scrollWidth") == 390
        assert phone.evaluate("[...document.querySelectorAll('.row')].filter(e => e.offsetHeight > 30).length") == len(
            content["layers"]
        )
        clipped = "[...document.querySelectorAll('.s')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
        assert phone.evaluate(clipped) == 0
    phone.close()
    assert seen == []


# --- on the command line ---


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "users_pair.py").write_text(
        "from torch import nn\ndef pair(): return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


MODEL = ["trace", "--model", "users_pair:pair", "--input", "1x4"]


def test_trace_prints_the_table_and_writes_the_page(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(MODEL) == 0
    table = capsys.readouterr().out
    assert main([*MODEL, "--depth", "--html", "space.html"]) == 0
    assert capsys.readouterr().out == f"{table}\nThe page of the space is space.html\n"
    page = Page((here / "space.html").read_text(encoding="utf-8"))
    assert "pair, input 1x4" in page.text
    assert "Linear" in page.text
    assert sorted(path.name for path in here.glob("*.html")) == ["space.html"]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("none/space.html", "there is no folder none; make it first"),
        (".", "is not a file name"),
        ("", "is not a file name"),
    ],
)
def test_a_page_that_cannot_be_written_gives_one_sentence(
    file: str, message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*MODEL, "--html", file]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == "", "nothing was traced for it"


def test_a_file_that_cannot_be_created_gives_one_sentence(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MODEL, "--html", "x" * 250 + ".html"]) == 2  # too long a name beside its part file
    error = capsys.readouterr().err
    assert "cannot be written (" in error
    assert error.count("\n") == 1
