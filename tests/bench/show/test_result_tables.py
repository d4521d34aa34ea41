"""Result tables have the columns of the paper: change from the full model, millions and shares, savings."""

from __future__ import annotations

from typing import Any

from meristem_bench.show.formatting import count_text
from meristem_bench.show.result_tables import comparison_table, result_table

FULL = {"params": 14_990_000, "macs": 1000, "spend_macs": 3e6, "blocks": {}}


def result(score: float, params: int, macs_frac: float, spend_frac: float, **more: Any) -> dict[str, Any]:
    """A result of VGG-16 as the paper has it."""
    counts = {"params": params, "macs": round(1000 * macs_frac), "spend_macs": 3e6 * spend_frac, "full": FULL}
    shares = {"params_frac": params / 14_990_000, "macs_frac": macs_frac, "spend_frac": spend_frac}
    about = {"name": "vgg", "method": "paper", "headline": "accuracy", "seconds": 90, "blocks": {}}
    return {**about, "test": {"accuracy": score}, **counts, **shares, **more}


def grown(**more: Any) -> list[dict[str, Any]]:
    return [
        result(0.924, 750_000, 0.1352, 1 / 4.8, **more),
        result(0.926, 758_000, 0.1358, 1 / 5.1, **more),
    ]


def dense(score: float = 0.929, **more: Any) -> list[dict[str, Any]]:
    return [result(score, 14_990_000, 1.0, 1.0, method="dense", **more)]


def cells(table: str) -> list[list[str]]:
    """The cells of every line, which two or more blanks separate."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in table.splitlines()]


def test_the_columns_are_those_of_the_paper() -> None:
    head, full, ours = cells(comparison_table([("dense", dense()), ("grown", grown())]))
    assert head == ["seeds", "test accuracy, %", "parameters", "macs, %", "savings", "minutes"]
    assert full == ["dense", "1", "92.90 (+0.00)", "14.99M (100.0 %)", "100.0", "1.00x", "1.5"]
    change, params = "92.50 ± 0.14 (-0.40)", "0.754 ± 0.006M (5.0 %)"
    assert ours == ["grown", "2", change, params, "13.6", "4.95 ± 0.21x", "1.5"]


def test_without_the_full_model_there_is_no_change_from_it() -> None:
    assert cells(comparison_table([("grown", grown())]))[1][2] == "92.50 ± 0.14"


def test_each_recipe_is_compared_with_its_own_full_model() -> None:
    """In a table of several recipes; one whose full model was not trained has no change."""
    rows = [
        *[("a", dense()), ("b", grown())],
        *[("c", dense(0.95, name="wrn")), ("d", grown(name="wrn"))],
        ("e", grown(name="resnet")),
    ]
    scores = [line[2] for line in cells(comparison_table(rows))[1:]]
    assert [score.partition(" (")[2] for score in scores] == ["+0.00)", "-0.40)", "+0.00)", "-2.50)", ""]


def test_blocks_have_a_column_where_depth_grows() -> None:
    deep = grown(blocks={"stages.0": 23, "stages.1": 29, "stages.2": 31})
    head, line = cells(comparison_table([("grown", deep)]))
    assert head[2:4] == ["blocks", "parameters"]
    assert line[3] == "23-29-31"


def test_an_experiment_without_results_has_no_line() -> None:
    plain = {key: value for key, value in grown()[0].items() if key not in ("name", "method", "blocks")}
    assert [line[0] for line in cells(comparison_table([("none", []), ("a", [plain])]))[1:]] == ["a"]


def test_a_run_that_has_cost_nothing_saves_without_end() -> None:
    assert cells(comparison_table([("a", [{**grown()[0], "spend_frac": 0.0}])]))[1][5] == "infx"


def test_small_counts_are_not_rounded_away() -> None:
    assert [count_text([count]) for count in (123.0, 9999.0, 12_345.0, 269_722.0, 36_479_194.0)] == [
        *("123", "9,999", "0.012M"),
        *("0.270M", "36.48M"),
    ]


def test_the_table_of_one_run_has_savings_with_and_without_growing() -> None:
    (one,) = (line for line in cells(result_table(grown()[0], None)) if line[0] == "savings")
    assert one == ["savings", "4.80x", "1.00x"]
    direct = result(0.92, 754_000, 0.25, 0.25, method="direct", total_spend_frac=0.5)
    lines = {line[0]: line[1:] for line in cells(result_table(direct, dense()[0]))}
    assert lines["savings"] == ["4.00x", "1.00x"]
    assert lines["with growing"] == ["2.00x", "50.0 %"]


def test_a_full_model_at_another_cost_is_no_reference() -> None:
    """Trained for fewer epochs, it is one arm among others."""
    short = [result(0.90, 14_990_000, 1.0, 0.75, method="dense")]
    rows = [("dense", dense()), ("grown", grown()), ("dense:cost=grown", short)]
    assert [line[2] for line in cells(comparison_table(rows))[1:]] == [
        "92.90 (+0.00)",
        "92.50 ± 0.14 (-0.40)",
        "90.00 (-2.90)",
    ]
    assert cells(comparison_table(rows[1:]))[1][2] == "92.50 ± 0.14"
