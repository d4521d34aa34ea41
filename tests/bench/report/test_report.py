"""Runs become one page and figure files; each figure of the paper that is a measurement has its counterpart."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser

from meristem.errors import FileError
from meristem_bench.cli import main
from meristem_bench.report.curve_figures import curve_figures, epoch_share
from meristem_bench.report.experiments import group_by_experiment
from meristem_bench.report.figure_style import ReportFigure
from meristem_bench.report.report import write_report
from meristem_bench.report.run_reader import read_reported_run
from meristem_bench.report.structure_figures import stage_members, structure_figures
from meristem_bench.report.tradeoff_figures import tradeoff_figures
from run_folders import write_run

ALWAYS = {"accuracy", "loss", "cost", "epoch-macs", "total-macs", "seconds"}
STRUCTURE = {"widths", "stages", "births", "temperature", "architecture"}
TRADEOFF = {"tradeoff-parameters", "tradeoff-macs", "tradeoff-spend", "tradeoff"}


@pytest.fixture(scope="module")
def single(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("single")
    write_report([runs / "deep"], out)
    return out


@pytest.fixture(scope="module")
def several(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("several")
    write_report([runs / "study"], out)
    return out


def figures(text: str) -> set[str]:
    return set(re.findall(r'<figure(?: class="tall")? id="([^"]+)"', text))


def test_every_figure_of_one_run_is_there(single: Path) -> None:
    text = (single / "report.html").read_text(encoding="utf-8")
    wanted = ALWAYS | STRUCTURE | {"blocks"}
    assert figures(text) == wanted
    for name in wanted:
        assert (single / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (single / "figures" / f"{name}.svg").read_text(encoding="utf-8")


def test_several_runs_are_overlaid_and_compared(several: Path) -> None:
    text = (several / "report.html").read_text(encoding="utf-8")
    numbered = {f"{number}-{name}" for number in (1, 2) for name in STRUCTURE}
    assert figures(text) >= ALWAYS | TRADEOFF | numbered
    assert "4 runs of 3 experiments" in text
    for title in ("grown, params=40%", "grown, params=70%", "uniform, params=40%"):
        assert title in text
    assert "±" in text


def test_results_have_the_columns_of_the_command(runs: Path, tmp_path: Path) -> None:
    """The change from the full model, parameters with their share, savings; with growing where it is not the same."""
    dense = write_run(tmp_path / "dense", method="dense")
    report = write_report([runs / "study", dense], tmp_path / "out")
    text = report.page.read_text(encoding="utf-8")
    heads = re.findall(r"<th(?: [^>]*)?>(.*?)</th>", text.partition("</table>")[0])
    assert heads == ["", "seeds", "test accuracy, %", "parameters", "macs, %", "savings", "minutes"]
    full = re.search(r"full model</td>.*?</tr>", text, re.DOTALL)
    assert full is not None
    assert re.findall(r"[(]([+]0.00|100.0 %)[)]|(1.00x)", full[0]) == [("+0.00", ""), ("100.0 %", ""), ("", "1.00x")]
    assert re.search(r"±.*[(]-\d+[.]\d\d[)]", text)


def test_the_page_needs_nothing_else(single: Path, several: Path) -> None:
    for folder in (single, several):
        text = (folder / "report.html").read_text(encoding="utf-8")
        addresses = set(re.findall(r"https?://[^\s\"'<>]+", text))
        assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
        assert not re.findall(r'(?:src|href)="(?!#|data:)', text)
        assert "<script" not in text


def test_every_figure_is_explained(single: Path) -> None:
    text = (single / "report.html").read_text(encoding="utf-8")
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", text)
    assert len(captions) == len(figures(text))
    assert all(caption.endswith(".") and len(caption) > 40 for caption in captions)


def test_ids_are_unique_and_colours_are_variables(several: Path) -> None:
    text = (several / "report.html").read_text(encoding="utf-8")
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    drawn = text.partition("</style>")[2]
    assert "var(--ink)" in drawn
    assert "#22262e" not in drawn


def test_a_group_table_names_first_most_and_last(runs: Path, single: Path) -> None:
    run = read_reported_run(runs / "deep")
    text = (single / "report.html").read_text(encoding="utf-8")
    for group in run.full:
        assert f"<td>{group}</td>" in text


def test_an_epochs_cost_is_the_difference_of_the_totals(runs: Path) -> None:
    run = read_reported_run(runs / "study" / "a")
    assert epoch_share(run) == pytest.approx(100 * run.column("macs_frac"))


def test_stages_hold_every_width_group_once(runs: Path) -> None:
    run = read_reported_run(runs / "deep")
    members = [name for _, names in stage_members(run, run.width_groups) for name in names]
    assert sorted(members) == sorted(run.width_groups)


def test_an_unfinished_run_of_an_odd_name_gives_a_report_and_says_so(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(runs / "study" / "a", tmp_path / "run"))
    (run / "result.json").unlink()
    (run / "history.jsonl").write_text("".join((run / "history.jsonl").read_text().splitlines(keepends=True)[:1]))
    content = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**content, "name": "<script>alert(1)</script>&"}))
    assert main(["report", str(run)]) == 0
    said = capsys.readouterr().out
    assert "note: The run is not finished, or still going on: 1 of 6 epochs are there, and no test result." in said
    text = (run / "report.html").read_text(encoding="utf-8")
    assert "What is not here" in text
    assert "<script" not in text
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize("kept", ["history.jsonl", "run.json"])
def test_a_folder_with_one_file_gives_a_report(runs: Path, tmp_path: Path, kept: str) -> None:
    (tmp_path / "run").mkdir()
    shutil.copy(runs / "study" / "a" / kept, tmp_path / "run" / kept)
    report = write_report([tmp_path / "run"], tmp_path / "out")
    assert report.remarks
    assert report.page.is_file()


def test_a_metric_of_any_name_stays_in_its_place(runs: Path, tmp_path: Path) -> None:
    run, name = Path(shutil.copytree(runs / "study" / "a", tmp_path / "run")), '../../"><script>$x_'
    records = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()[:1]]
    (run / "history.jsonl").write_text(json.dumps({**records[0], "metrics": {f"val_{name}": 0.4}}) + "\n")
    result = json.loads((run / "result.json").read_text())
    odd = {"headline": name, "test": {name: 0.5}, "params": None, "blocks": [1], "seconds": 10**400}
    (run / "result.json").write_text(json.dumps({**result, **odd}))
    content = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**content, "name": "\u6811 $\\frac$ " + "long" * 100}))
    report = write_report([run], tmp_path / "out")
    assert tmp_path / "out" / "figures" / "script-x_.svg" in report.figures
    assert {path.parent for path in report.figures} == {tmp_path / "out" / "figures"}
    assert {path.name for path in tmp_path.iterdir()} == {"run", "out"}
    text = report.page.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "not known" in text


def test_bad_arguments_give_one_sentence(tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="the report cannot be written to"):
        write_report([runs / "study" / "a"], tmp_path / "file" / "inside")


def test_without_matplotlib_the_extra_is_named(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for command in (["report", str(runs / "deep")], ["grow", "--report"], ["sweep", "--budgets", "20%", "--report"]):
        assert main(command) == 2
        assert "pip install 'meristem[report]'" in capsys.readouterr().err


def long_run(base: Path, path: Path, epochs: int, groups: int) -> Path:
    """A run of many epochs and groups, made from a small one's last record."""
    shutil.copytree(base, path)
    record: dict[str, Any] = json.loads((path / "history.jsonl").read_text().splitlines()[-1])
    names = [f"stages.{number // 40}.{number}.conv1" for number in range(groups)]
    random = np.random.default_rng(0)
    with (path / "history.jsonl").open("w") as file:
        for epoch in range(1, epochs + 1):
            widths = {name: int(random.integers(1, 64)) for name in names}
            temperature = {name: 1.0 + epoch * random.random() for name in names}
            spent = {"spend_macs": 1e9 * epoch, "dense_spend_macs": 3e9 * epoch, "grown": 3, "pruned": 2}
            file.write(
                json.dumps({**record, "epoch": epoch, "widths": widths, "temperature": temperature, **spent}) + "\n"
            )
    about = json.loads((path / "space.json").read_text())
    group, layer = about["groups"][0], about["layers"][0]
    about["groups"] = [{**group, "name": name, "units": 64, "makers": [name]} for name in names]
    form = {"size": 64}
    about["layers"] = [
        {**layer, "module": name, "out": {**form, "terms": [[1.0, [name]]]}, "stage": number // 40}
        for number, name in enumerate(names)
    ]
    (path / "space.json").write_text(json.dumps(about))
    return path


def test_a_long_run_stays_a_small_page(runs: Path, tmp_path: Path) -> None:
    report = write_report([long_run(runs / "study" / "a", tmp_path / "run", 200, 100)], tmp_path / "out")
    assert report.page.stat().st_size < 3_000_000
    assert figures(report.page.read_text(encoding="utf-8")) == ALWAYS | STRUCTURE


# --- as a browser shows it ---


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_all_of_it(browser: Browser, several: Path, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    page, trouble, asked = context.new_page(), list[str](), list[str]()
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((several / "report.html").as_uri())
    assert trouble == []
    assert asked == [(several / "report.html").as_uri()]
    for closed in page.query_selector_all("details"):
        closed.evaluate("element => element.open = true")
    drawn = page.eval_on_selector_all(
        "figure", "all => all.map(f => [f.id, f.querySelector('svg').getBoundingClientRect().height])"
    )
    assert {name for name, _ in drawn} == figures((several / "report.html").read_text(encoding="utf-8"))
    assert all(height > 80 for _, height in drawn)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    ink, paper = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert (_light(ink) > _light(paper)) is (scheme == "dark")
    context.close()


def _light(colour: str) -> int:
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


# --- experiments that have not all in common ---


def texts(report_figure: ReportFigure) -> list[str]:
    (axes,) = report_figure.figure.axes
    return [text.get_text() for text in (*axes.texts, *axes.get_yticklabels())]


def test_each_total_is_a_share_of_its_own_full_model(tmp_path: Path) -> None:
    """A run of twice the epochs beside it does not halve the share of a run."""
    reported = [read_reported_run(write_run(tmp_path / str(epochs), epochs=epochs)) for epochs in (4, 8)]
    alone, together = (list(curve_figures(group_by_experiment(runs))) for runs in (reported[:1], reported))
    (share,) = re.findall(r"\(.*%\)", " ".join(texts(figure(alone, "total-macs"))))
    labels = texts(figure(together, "total-macs"))
    assert any(share in text for text in labels)
    assert sum(text.startswith("full model for") for text in labels) == 2
    uniform = read_reported_run(write_run(tmp_path / "u", epochs=4, method="uniform"))
    same = curve_figures(group_by_experiment([reported[0], uniform]))
    assert texts(figure(list(same), "total-macs")).count("full model") == 1
    dense = read_reported_run(write_run(tmp_path / "dense", epochs=4, method="dense"))
    trained = list(curve_figures(group_by_experiment([reported[0], dense])))
    assert texts(figure(trained, "total-macs")).count("full model") == 1
    (axes,) = figure(trained, "epoch-macs").figure.axes
    assert axes.get_legend_handles_labels()[1].count("full model") == 1


def test_a_curve_joins_only_what_differs_in_the_budget(tmp_path: Path) -> None:
    reported = []
    for number, (lr, budget) in enumerate((lr, budget) for lr in (0.1, 0.2) for budget in ("params=30%", "params=60%")):
        reported.append(read_reported_run(write_run(tmp_path / str(number), epochs=4, lr=lr, budget=budget)))
    (axes,) = figure(list(tradeoff_figures(group_by_experiment(reported))), "tradeoff-parameters").figure.axes
    assert axes.get_legend_handles_labels()[1] == ["lr=0.1", "lr=0.2"]
    for line in axes.containers:
        assert len(line[0].get_xdata()) == 2


def test_costs_of_several_are_of_one_kind(tmp_path: Path) -> None:
    """An arm that follows no plan is shown by the cost that the others plan."""
    free = write_run(tmp_path / "free", method="paper", budget="macs=40%")
    reported = [read_reported_run(free), read_reported_run(write_run(tmp_path / "planned", budget="macs=40%"))]
    (axes,) = figure(list(curve_figures(group_by_experiment(reported))), "cost").figure.axes
    assert axes.get_ylabel() == "macs, % of the full model"
    assert axes.lines[0].get_ydata()[0] == pytest.approx(100 * reported[0].column("macs_frac")[0])


def test_the_full_model_is_a_line_across_a_trade_off(tmp_path: Path) -> None:
    """At 100 % of everything it would press the others together."""
    small = [write_run(tmp_path / budget, epochs=4, budget=f"params={budget}%") for budget in ("10", "30")]
    reported = [read_reported_run(path) for path in (*small, write_run(tmp_path / "dense", epochs=4, method="dense"))]
    (axes,) = figure(list(tradeoff_figures(group_by_experiment(reported))), "tradeoff-macs").figure.axes
    assert axes.get_xlim()[1] < 80
    (level,) = (drawn for drawn in axes.lines if drawn.get_label() == "full model")
    assert set(level.get_ydata()) == {100 * reported[2].result["test"]["accuracy"]}  # type: ignore[index]
    together = figure(list(tradeoff_figures(group_by_experiment(reported))), "tradeoff").figure
    assert [axes.get_xlabel().split(",")[0] for axes in together.axes] == ["parameters", "macs", "training cost"]
    assert len(together.legends) == 1
    assert list(tradeoff_figures(group_by_experiment(reported[1:]))) == []  # one point is no trade-off


def test_a_stage_has_a_line_for_each_of_its_groups_and_one_for_their_mean(runs: Path) -> None:
    (experiment,) = group_by_experiment([read_reported_run(runs / "study" / "a")])
    members = stage_members(experiment.first, experiment.first.width_groups)
    panels = figure(list(structure_figures(experiment)), "stages").figure.axes
    for axes, (_, names) in zip(panels, members, strict=False):
        *groups, mean = [np.asarray(drawn.get_ydata()) for drawn in axes.lines]
        assert len(groups) == len(names)
        assert mean == pytest.approx(np.mean(groups, axis=0))


def test_temperatures_are_of_all_units_and_of_the_live_ones(runs: Path, tmp_path: Path) -> None:
    """As the paper averages them over a layer, and of the live ones alone; early runs have recorded only these."""
    run = read_reported_run(write_run(tmp_path / "new", method="paper"))
    every, live, _ = figure(list(structure_figures(*group_by_experiment([run]))), "temperature").figure.axes
    assert [axes.get_title(loc="left") for axes in (every, live)] == ["all units", "live units"]
    group = run.width_groups[0]
    assert every.lines[0].get_ydata() == pytest.approx(run.column("temperature_with_absent", group))
    assert live.lines[0].get_ydata() == pytest.approx(run.column("temperature", group))
    assert (run.column("temperature_with_absent", group) <= run.column("temperature", group) + 1e-9).all()
    old = dataclasses.replace(run, records=tuple({**each, "temperature_with_absent": {}} for each in run.records))
    alone, _ = figure(list(structure_figures(*group_by_experiment([old]))), "temperature").figure.axes
    assert alone.get_title(loc="left") == "live units"


def test_what_has_grown_is_drawn_before_what_has_not(tmp_path: Path) -> None:
    """Of many experiments only some are drawn in detail; a fixed network has nothing to show there."""
    write_run(tmp_path / "runs" / "a", epochs=4, method="uniform")
    write_run(tmp_path / "runs" / "b", epochs=4)
    text = write_report([tmp_path / "runs"], tmp_path / "out").page.read_text(encoding="utf-8")
    assert re.findall(r"What grew: (\w+)", text) == ["grown", "uniform"]


def test_the_arms_of_all_ablations_have_colours_of_their_own(tmp_path: Path) -> None:
    """Eight arms and the full model, all in the legend, and room for it below the curves."""
    reported = [read_reported_run(write_run(tmp_path / "0", epochs=4, method="dense"))]
    reported += [read_reported_run(write_run(tmp_path / str(lr), epochs=4, lr=lr)) for lr in range(1, 9)]
    drawn = figure(list(curve_figures(group_by_experiment(reported))), "accuracy").figure
    (axes,) = drawn.axes
    curves = [line for line in axes.lines if len(np.asarray(line.get_xdata())) > 1]
    assert len({line.get_color() for line in curves}) == 9
    assert len(axes.get_legend().get_texts()) == 9  # type: ignore[union-attr]
    assert drawn.get_figheight() > 3


def figure(figures: list[ReportFigure], name: str) -> ReportFigure:
    return next(each for each in figures if each.name == name)
