"""The benchmark that runs Torch-Pruning's own pruning: it lands on the budget, and every stage is on the ledger."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest

from meristem.cost.ledger import FINE_TUNE, PRE_TRAIN, SEARCH
from meristem_bench.recipes.lookup import find_run
from meristem_bench.runs.training import load_data
from other_libraries import ROOT, library


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("torch_pruning_runs", ROOT / "benchmarks" / "torch_pruning_runs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_without_the_library_it_says_so(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch_pruning", None)
    assert benchmark.main(["digits"]) == 0
    assert "torch_pruning is not installed, so there is nothing to measure" in capsys.readouterr().out


@pytest.mark.parametrize("variant", ["magnitude", "taylor-global"])
def test_it_lands_and_is_counted(benchmark: ModuleType, variant: str) -> None:
    library("torch_pruning")
    run = find_run("digits", None).with_settings({"epochs": "2"})
    data = load_data(run)
    result = benchmark.result_of(run, data, variant, 0)
    assert 0.3 < result["params_frac"] <= 0.36
    epoch = 3 * data.steps(run.batch) * run.batch * result["macs"] / result["macs_frac"] / len(data.example[0])
    stages = result["spend_by_stage"]
    assert stages[PRE_TRAIN] == pytest.approx(epoch)
    assert stages[FINE_TUNE] == pytest.approx(epoch * result["macs_frac"])
    taylor = 3 * benchmark.TAYLOR_BATCHES * run.batch * result["macs"] / result["macs_frac"] / len(data.example[0])
    assert stages.get(SEARCH, 0.0) == pytest.approx(taylor if "taylor" in variant else 0.0)
    assert result["spend_frac"] == pytest.approx(sum(stages.values()) / (2 * epoch))
