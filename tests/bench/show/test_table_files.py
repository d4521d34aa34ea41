"""The table as markdown and as JSON: two totals of cost, latency, what failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meristem_bench.show.table_files import markdown, summary, write_table_files

FULL = {"params": 1000, "macs": 100, "spend_macs": 1e6, "blocks": {}}


def result(score: float, spend: float, seed: int = 0, **more: Any) -> dict[str, Any]:
    shares = {"params_frac": 0.4, "macs_frac": 0.5, "spend_frac": spend, "total_spend_frac": spend}
    about = {"name": "tiny", "method": "l1", "headline": "accuracy", "seconds": 120.0, "blocks": {}, "seed": seed}
    return {**about, "test": {"accuracy": score}, "params": 400, "macs": 50, "full": FULL, **shares, **more}


def latency(one: float, batch: float, other_work: float | None = 0.0) -> dict[str, Any]:
    return {"ms": {"1": one, "64": batch}, "threads": 1, "other_work": other_work}


ROWS = [
    ("dense", [result(0.9, 1.0, method="dense", params=1000, params_frac=1.0, macs_frac=1.0)]),
    ("l1", [result(0.88, 0.7, seed, latency=latency(1.0 + seed, 20.0)) for seed in (0, 1)]),
    ("direct", [result(0.89, 0.4, total_spend_frac=0.8, latency=latency(1.5, 30.0, other_work=0.9))]),
]


def test_the_markdown_has_both_totals_and_says_what_columns_mean() -> None:
    head, rule, dense, l1, direct, *rest = markdown(ROWS, ["params 1% bar seed 0: no room"]).splitlines()
    assert [cell.strip() for cell in head.split("|")[2:-1]] == [
        *("seeds", "test accuracy, %", "parameters", "macs, %", "savings", "with all", "minutes"),
        *("ms, batch 1", "ms, batch 64"),
    ]
    assert set(rule) <= set("| -")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in (dense, l1, direct)]
    assert [line[5:7] for line in cells] == [["1.00x", "1.00x"], ["1.43x", "1.43x"], ["2.50x", "1.25x"]]
    assert [line[8:] for line in cells] == [["", ""], ["1.50 ± 0.71", "20.0"], ["1.50*", "30.0*"]]
    text = "\n".join(rest)
    assert "*: measured while the machine had other work" in text
    assert "- failed: params 1% bar seed 0: no room" in text
    assert "other work" not in markdown(ROWS[:2])


def test_the_json_has_means_deviations_and_the_drop_from_dense(tmp_path: Path) -> None:
    paths = write_table_files(tmp_path, ROWS, ["one"])
    assert [path.name for path in paths] == ["table.md", "table.json"]
    written = json.loads((tmp_path / "table.json").read_text())
    assert written == json.loads(json.dumps(summary(ROWS, ["one"])))
    assert written["failed"] == ["one"]
    dense, l1, direct = written["experiments"]
    assert dense["drop_from_dense"] == 0.0
    assert l1["drop_from_dense"] == pytest.approx(2.0)
    assert l1["seeds"] == [0, 1]
    assert l1["latency_ms"]["1"] == {"mean": 1.5, "deviation": pytest.approx(0.7071, abs=1e-4)}
    assert direct["savings"]["mean"] == pytest.approx(2.5)
    assert direct["total_savings"]["mean"] == pytest.approx(1.25)
    assert [each["latency_beside_other_work"] for each in (dense, l1, direct)] == [False, False, True]


def test_without_the_full_model_there_is_no_drop() -> None:
    assert [each["drop_from_dense"] for each in summary(ROWS[1:])["experiments"]] == [None, None]
