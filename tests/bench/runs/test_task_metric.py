"""Metrics as people see them: shares in percent, perplexity as it is, and results that say so themselves."""

from __future__ import annotations

import dataclasses
import io

from meristem_bench.runs.task_metric import headline, metric
from meristem_bench.show.progress import ProgressDisplay
from meristem_bench.show.result_tables import comparison_table, result_table

COSTS = {"params_frac": 0.1, "macs_frac": 0.2, "spend_frac": 0.3, "seconds": 90}


def result(name: str, value: float, says_how: bool = True) -> dict[str, object]:
    full = {"params": 100, "macs": 100, "spend_macs": 1e3, "blocks": {}}
    shown = {"metric": dataclasses.asdict(metric(name))} if says_how else {}
    amounts = {"params": 10, "macs": 20, "spend_macs": 300.0, "blocks": {}, "full": full, "method": "default"}
    return {"headline": name, "test": {name: value}, **shown, **amounts, **COSTS}


def test_shares_are_shown_in_percent_and_perplexity_as_it_is() -> None:
    for name in ("accuracy", "miou", "top5"):
        assert metric(name).text(0.9137, 2) == "91.37 %"
        assert metric(name).more_is_better
    assert metric("perplexity").text(82.456, 2) == "82.46"
    assert not metric("perplexity").more_is_better


def test_a_result_says_itself_how_it_is_to_be_read_and_an_early_one_is_a_share() -> None:
    assert headline(result("perplexity", 80.0)) == metric("perplexity")
    assert headline(result("accuracy", 0.9, says_how=False)) == metric("accuracy")
    own = {**result("ratio", 3.0), "metric": {"is_share": False, "more_is_better": True}}
    assert headline(own).text(3.0) == "3.0"


def test_a_table_compares_in_the_metrics_own_terms() -> None:
    first = result_table(result("perplexity", 82.5), result("perplexity", 80.0)).splitlines()[1]
    assert first.split() == ["test", "perplexity", "82.50", "80.00", "+2.50", "(worse)"]
    first = result_table(result("perplexity", 80.0), result("perplexity", 80.001)).splitlines()[1]
    assert first.split()[-1] == "-0.00"
    first = result_table(result("accuracy", 0.9), result("accuracy", 0.92)).splitlines()[1]
    assert first.split() == ["test", "accuracy", "90.00", "%", "92.00", "%", "-2.00", "points"]


def test_bits_per_byte_have_a_digit_more_everywhere() -> None:
    first = result_table(result("bits_per_byte", 2.0714), result("bits_per_byte", 2.06)).splitlines()[1]
    assert first.split() == ["test", "bits_per_byte", "2.071", "2.060", "+0.011", "(worse)"]
    rows = [("a", [result("bits_per_byte", 2.0714)])]
    assert comparison_table(rows).splitlines()[1].split()[:3] == ["a", "1", "2.071"]


def test_a_table_of_several_seeds_does_too() -> None:
    lines = comparison_table([("a", [result("perplexity", 80.0), result("perplexity", 82.0)])]).splitlines()
    assert lines[0].split() == ["seeds", "test", "perplexity", "parameters", "macs,", "%", "savings", "minutes"]
    assert lines[1].split()[:5] == ["a", "2", "81.00", "±", "1.41"]


def test_a_table_of_several_seeds_has_the_validation_data_where_a_run_has_any() -> None:
    held_out = {**result("perplexity", 80.0), "validation": {"perplexity": 84.0}}
    lines = comparison_table([("a", [held_out]), ("b", [held_out, result("perplexity", 80.0)])]).splitlines()
    assert lines[0].split()[:4] == ["seeds", "validation", "test", "perplexity"]
    assert lines[1].split()[:4] == ["a", "1", "84.00", "80.00"]
    assert lines[2].split()[:3] == ["b", "2", "80.00"]  # one of the two has none: a mean would be of other runs


def test_progress_shows_it_the_same_way() -> None:
    progress = ProgressDisplay(io.StringIO())
    record = {
        "metrics": {"val_perplexity": 212.345, "train_loss": 5.5},
        "planned": {},
        "params_frac": 0.5,
        "spend_frac": 0.3,
        "widths": {"a": 1},
    }
    progress._metric = metric("perplexity")
    progress._ends = [0.0]
    assert "perplexity 212.3  params 50.0 %  spend 30.0 %  loss 5.500" in progress._numbers(record)
