"""Several runs as one: `meristem grow --seeds` and `meristem sweep`."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from meristem.control.budget import Budget
from meristem_bench.cli import main
from meristem_bench.recipes.deep import basic3_resnet_cifar10_short
from meristem_bench.recipes.lookup import find_run
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.training import build
from meristem_bench.show.formatting import mean_and_deviation
from meristem_bench.studies import execution
from meristem_bench.studies.study import Study
from tiny_recipe import SLOW, tiny_recipe

BROKEN = """
    if os.path.exists("broken"):
        raise ValueError("the file x is damaged")
"""
WIDE = """
def wide():
    return nn.Sequential(nn.Linear(6, 30), nn.ReLU(), nn.Linear(30, 3))
"""
RECIPE = tiny_recipe(epochs=2, met=SLOW + BROKEN, more=WIDE)
# Only what a test starts itself is a new interpreter, and so are the runs that one starts.
pytestmark = pytest.mark.usefixtures("forked_studies")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "small_recipe.py").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sweep(*words: str) -> int:
    return main(["sweep", "small_recipe:tiny", *words])


def results(out: str) -> list[dict[str, str]]:
    with (Path(out) / "results.csv").open() as file:
        return list(csv.DictReader(file))


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(list(words)) == 2
    error = capsys.readouterr().err
    assert error.startswith("meristem: ")
    assert error.count("\n") == 1
    return error


def test_autogrow_finds_its_size_by_itself(tmp_path: Path) -> None:
    """Once a seed, whatever the budgets of the others are, and free to take all the room there is."""
    budgets = (Budget(params="20%"), Budget(params="40%"))
    run = basic3_resnet_cifar10_short()
    study = Study(run.name, run, ("grown", "autogrow:every=2", "dense"), budgets, (0, 1), tmp_path, by_budget=True)
    cases = [(case.arm, case.budget, case.seed) for case in study.cases() if case.arm != "grown"]
    assert cases == [(arm, None, seed) for arm in ("autogrow:every=2", "dense") for seed in (0, 1)]
    runs = {case.title: study.run_of(case) for case in study.cases()}
    assert str(runs["autogrow:every=2"].growth.budget) == "params 100%"
    assert str(runs["params 20%  grown"].growth.budget) == "params 20%"
    assert runs["autogrow:every=2"].growth.method == "autogrow:every=2"


def test_arms_may_be_methods_with_other_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """The plan of one rises above the budget, that of the other does not: more is spent."""
    words = ["--budgets", "30%", "--arms", "default:peak=1,default:peak=2.5", "--epochs", "6", "--out", "out"]
    assert sweep(*words) == 0
    assert "params 30%  default:peak=2.5" in capsys.readouterr().out
    spent = [
        json.loads(Path(f"out/params=30%/default_peak={peak}-seed0/result.json").read_text()) for peak in ("1", "2.5")
    ]
    assert [result["method"] for result in spent] == ["default:peak=1", "default:peak=2.5"]
    assert spent[0]["spend_frac"] < spent[1]["spend_frac"]
    assert "has no 'peek' to be changed; did you mean peak?" in refusal(
        capsys, "sweep", "small_recipe:tiny", "--arms", "default:peek=1"
    )


def test_several_recipes_are_one_table(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (here / "small_recipe.py").read_text()
    (here / "more_recipe.py").write_text(text.replace('Run("tiny"', 'Run("other"') + "\n" + JUDGED)
    words = ["--arms", "grown,dense", "--out", "out", "--jobs", "2"]
    assert main(["sweep", "small_recipe:tiny, more_recipe:tiny", *words]) == 0
    output = capsys.readouterr().out
    titles = [line.split("  ")[0] for line in output[output.index("seeds") :].splitlines()[1:5]]
    assert titles == ["tiny", "tiny", "other", "other"]
    for name in ("tiny", "other"):
        assert len(Path(f"out/{name}/results.csv").read_text().splitlines()) == 3
        assert json.loads(Path(f"out/{name}/params=36%/grown-seed0/run.json").read_text())["name"] == name
    for second, message in (
        ("more_recipe:same", "two of the recipes small_recipe:tiny, more_recipe:same have the same name"),
        ("more_recipe:judged", "the recipes are judged by accuracy and perplexity, which is no one table"),
        ("", "there is no recipe ''"),
    ):
        assert message in refusal(capsys, "sweep", f"small_recipe:tiny,{second}", "--out", "none")
    assert not Path("none").exists()
    assert main(["grow", "small_recipe:tiny", "--out", "one"]) == 0
    error = refusal(capsys, "sweep", "small_recipe:tiny,more_recipe:tiny", "--out", "one")
    assert "one holds a single run; several need a folder of their own" in error


JUDGED = """
from meristem_bench.runs.task import LanguageModel
def judged():
    return tiny().replace(name="third", task=LanguageModel())
def same():
    return tiny().replace(name="tiny")
"""


def test_several_seeds_give_mean_and_deviation(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["grow", "small_recipe:tiny", "--seeds", "3", "--seed", "4", "--epochs", "12", "--out", "out"]
    assert main([*words, "--with-dense"]) == 0
    output = capsys.readouterr().out
    assert sorted(path.name for path in Path("out").iterdir() if path.is_dir()) == [
        f"{arm}-seed{seed}" for arm in ("dense", "grown") for seed in (4, 5, 6)
    ]
    (line,) = (line for line in output.splitlines() if line.startswith("params 36%  grown"))
    assert line.split()[3] == "3"
    assert "±" in line
    # One of the runs alone is the same run.
    assert main(["grow", "small_recipe:tiny", "--seed", "5", "--epochs", "12", "--out", "alone"]) == 0
    alone, among = (json.loads(Path(each, "result.json").read_text()) for each in ("alone", "out/grown-seed5"))
    assert alone["test"] == among["test"]
    # Given again, nothing is run; with another setting it is refused.
    capsys.readouterr()
    assert main([*words, "--with-dense"]) == 0
    assert "---" not in capsys.readouterr().out
    assert "was started with lr=0.1, not 0.2" in refusal(capsys, *words, "--set", "lr=0.2")


def test_a_sweep_has_a_grown_a_uniform_and_a_direct_network_for_each_budget(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert sweep("--budgets", "30%,60%", "--out", "out") == 0
    rows = results("out")
    assert [(row["budget"], row["arm"]) for row in rows] == [
        (f"params={share}%", arm) for share in (30, 60) for arm in ("grown", "uniform", "direct")
    ]
    assert all(float(row["params_frac"]) <= float(row["budget"][7:-1]) / 100 for row in rows)
    assert all(float(row["savings"]) == pytest.approx(1 / float(row["spend_frac"])) for row in rows)
    assert {row["blocks"] for row in rows} == {""}
    # Groups in step end with the uniform widths: that network is not trained a second time.
    assert not Path("out/params=30%/direct-seed0").exists()
    assert rows[1]["test"] == rows[2]["test"]
    # More may be added later; by macs too.
    assert sweep("--budgets", "30%,60%,80%", "--out", "out", "--arms", "grown,dense") == 0
    assert [(row["budget"], row["arm"]) for row in results("out")][-1] == ("", "dense")
    assert sweep("--budgets", "50%", "--by", "macs", "--out", "macs", "--arms", "grown") == 0
    assert float(results("macs")[0]["macs_frac"]) <= 0.5


def test_direct_design_is_trained_where_it_is_another_network() -> None:
    assert sweep("--budgets", "40%", "--method", "search", "--arms", "direct,grown", "--out", "out", "--jobs", "2") == 0
    grown, direct = (Folder(Path(f"out/params=40%/{arm}-seed0")) for arm in ("grown", "direct"))
    assert json.loads(grown.result.read_text())["widths"] == json.loads(direct.result.read_text())["widths"]
    assert json.loads(direct.description.read_text())["settings"]["method"] == "direct"


def test_a_direct_design_may_train_the_widths_of_any_arm_and_cost_what_any_arm_costs() -> None:
    """An arm without a budget of its own, here the full network under a lasso, is the same run for every budget."""
    arms = "direct:cost=morphnet:of=morphnet,morphnet,uniform:cost=iss,iss"
    assert sweep("--budgets", "40%", "--arms", arms, "--epochs", "6", "--out", "out") == 0
    found, direct = (Path(f"out/params=40%/{arm}-seed0") for arm in ("morphnet", "direct_cost=morphnet_of=morphnet"))
    widths = [json.loads(Folder(each).result.read_text())["widths"] for each in (found, direct)]
    assert widths[0] == widths[1]
    rows = {row["arm"]: row for row in results("out")}
    search = float(rows["morphnet"]["spend_frac"])
    own = float(rows["direct:cost=morphnet:of=morphnet"]["spend_frac"])
    assert float(rows["direct:cost=morphnet:of=morphnet"]["total_spend_frac"]) == pytest.approx(own + search)
    assert own == pytest.approx(search, abs=float(rows["morphnet"]["macs_frac"]) / 12 + 1e-9)
    assert int(rows["uniform:cost=iss"]["epochs"]) > 6


EQUAL_COST = ["--method", "search:peak=2.5", "--budgets", "40%", "--epochs", "10"]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_fixed_structure_can_be_trained_at_the_cost_of_growing(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Growing passes through larger networks here: what it has found is trained for longer than it was grown."""
    arms = "direct:cost=grown,dense:cost=grown,uniform:cost=grown,uniform,grown"
    assert sweep(*EQUAL_COST, "--arms", arms, "--jobs", jobs, "--out", "out") == 0
    rows, output = {row["arm"]: row for row in results("out")}, capsys.readouterr().out
    spent = float(rows["grown"]["spend_frac"])
    for arm in ("uniform:cost=grown", "dense:cost=grown", "direct:cost=grown"):
        share = float(rows[arm]["macs_frac"])
        assert int(rows[arm]["epochs"]) == round(10 * spent / share) != 10
        assert float(rows[arm]["spend_frac"]) == pytest.approx(spent, abs=share / 20 + 1e-9)  # half an epoch of it
        assert f"params 40%  {arm}" in output
    assert rows["uniform"]["epochs"] == rows["grown"]["epochs"] == "10"
    total = float(rows["direct:cost=grown"]["total_spend_frac"])
    assert total == pytest.approx(float(rows["direct:cost=grown"]["spend_frac"]) + spent)


def test_the_learning_rate_is_annealed_over_the_epochs_that_equal_cost_allows(here: Path) -> None:
    assert sweep(*EQUAL_COST, "--arms", "grown,dense:cost=grown", "--set", "fine_tune=2", "--out", "out") == 0
    folder = Folder(here / "out/params=40%/dense_cost=grown-seed0")
    content, result = (json.loads(path.read_text()) for path in (folder.description, folder.result))
    assert (content["settings"]["epochs"], content["settings"]["method"]) == (10, "dense")
    assert content["settings"]["cost_of"] == str(here / "out/params=40%/grown-seed0")
    training = build(find_run("small_recipe:tiny").with_settings(content["settings"]), None)
    epochs, fine_tune = result["epochs"], result["fine_tune"]
    assert (training.run.epochs, training.run.fine_tuning.epochs) == (epochs, fine_tune)
    assert 1 <= epochs < 10
    steps = training.data.steps(16)
    factors = [training.scheduler.lr_lambdas[0](step) for step in range((epochs + fine_tune) * steps)]
    assert factors[epochs * steps] == factors[0] == 1.0
    assert factors[epochs * steps - 1] < 0.1


def test_a_direct_design_at_equal_cost_that_is_the_uniform_network_is_not_trained_twice() -> None:
    words = ["--budgets", "40%", "--epochs", "10", "--method", "default:peak=2.5"]
    assert sweep(*words, "--arms", "grown,uniform,uniform:cost=grown,direct:cost=grown", "--out", "out") == 0
    rows = {row["arm"]: row for row in results("out")}
    assert not Path("out/params=40%/direct_cost=grown-seed0").exists()
    assert rows["direct:cost=grown"]["epochs"] == rows["uniform:cost=grown"]["epochs"] != rows["uniform"]["epochs"]
    assert float(rows["direct:cost=grown"]["total_spend_frac"]) > float(rows["uniform:cost=grown"]["total_spend_frac"])
    # Without the uniform network at that cost it is trained: the one that was trained for longer or shorter is another.
    assert sweep(*words, "--arms", "grown,uniform,direct:cost=grown", "--out", "other") == 0
    assert Path("other/params=40%/direct_cost=grown-seed0/result.json").exists()


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_study_at_equal_cost_goes_on_and_can_be_moved(jobs: str, here: Path) -> None:
    words = [*EQUAL_COST, "--arms", "grown,uniform:cost=grown,direct:cost=grown", "--jobs", jobs]
    assert sweep(*words, "--out", "out") == 0
    before = [{**row, "seconds": ""} for row in results("out")]
    (here / "out").rename(here / "moved")
    for arm in ("uniform", "direct"):
        (here / f"moved/params=40%/{arm}_cost=grown-seed0/result.json").unlink(missing_ok=True)
    assert sweep(*words, "--out", "moved") == 0
    assert [{**row, "seconds": ""} for row in results("moved")] == before


def test_side_by_side_is_the_same_as_in_turn() -> None:
    for jobs in "12":
        words = ["--budgets", "30%,60%", "--arms", "grown", "--model", "small_recipe:wide", "--jobs", jobs]
        assert sweep(*words, "--out", f"out{jobs}") == 0
    measured = ("seconds", "latency_ms_1", "latency_ms_batch", "other_work")
    one, two = ([{**row, **dict.fromkeys(measured)} for row in results(f"out{jobs}")] for jobs in "12")
    assert one == two


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_stopped_study_goes_on(jobs: str, here: Path) -> None:
    (here / "slow").touch()
    words = [sys.executable, "-m", "meristem", "sweep", "small_recipe:tiny", "--budgets", "30%,60%", "--epochs", "4"]
    words += ["--arms", "grown,uniform", "--jobs", jobs, "--out", "out"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not list(here.glob("out/*/*/checkpoint.ckpt")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate()
    assert process.returncode == 130
    assert error == "meristem: stopped; every finished epoch is kept. To go on: the same command again\n"
    (here / "slow").unlink()
    assert main(words[3:]) == 0
    assert len(results("out")) == 4


def test_a_run_that_fails_is_named_and_the_others_are_kept(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    words = ["sweep", "small_recipe:tiny", "--arms", "grown", "--out", "out", "--jobs", "2"]
    error = refusal(capsys, *words, "--budgets", "40%,1%")
    assert "1 of 2 runs failed: see out/params=1%/grown-seed0.log" in error
    assert "cannot be met" in Path("out/params=1%/grown-seed0.log").read_text()
    assert len(results("out")) == 1
    # In turn it is the same: the others are run, and a reason that several share is told once.
    error = refusal(capsys, *words[:-2], "--arms", "grown,direct", "--budgets", "1%,50%").replace("  ", " ")
    assert "2 of 4 runs failed: params 1% grown seed 0: the budget of 1% params cannot be met" in error
    assert "; params 1% direct seed 0: there is no grown network" in error
    assert len(results("out")) == 2
    (here / "broken").touch()
    error = refusal(capsys, *words[:-2], "--budgets", "55%,60%")
    assert error.count("tiny: the file x is damaged") == 1
    assert "2 of 2 runs failed" in error


def test_a_run_that_breaks_in_the_users_own_code_does_not_stop_the_others(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    breaking = 'def load(run):\n    if run.growth.method == "uniform":\n        {}["x"]\n'
    (here / "half_recipe.py").write_text(RECIPE.replace("def load(run):\n", breaking))
    words = ["sweep", "half_recipe:tiny", "--method", "search", "--budgets", "40%", "--arms", "uniform,grown,direct"]
    for jobs, reason in (("1", "uniform seed 0: KeyError: 'x'"), ("2", "see out2/params=40%/uniform-seed0.log")):
        assert main([*words, "--out", f"out{jobs}", "--jobs", jobs]) == 2
        error = capsys.readouterr().err.splitlines()[-1].replace("  ", " ")
        assert error.startswith("meristem: 1 of 3 runs failed: ")
        assert reason in error
        assert [row["arm"] for row in results(f"out{jobs}")] == ["grown", "direct"]  # it does not need the uniform one


def test_a_run_that_another_process_finishes_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commands on one folder: what one of them may not touch is there when the other is done."""
    run_in_sequence = execution.run_in_sequence

    def refused(*args: Any) -> list[str]:
        return [*run_in_sequence(*args), "seed 0: another process is running in out"]

    monkeypatch.setattr(execution, "run_in_sequence", refused)
    assert sweep("--budgets", "30%", "--arms", "uniform", "--out", "out") == 0


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_study_with_a_direct_design_can_be_moved(jobs: str, here: Path) -> None:
    words = ["--method", "search", "--budgets", "40%", "--arms", "grown,direct", "--jobs", jobs]
    assert sweep(*words, "--out", "out") == 0
    (here / "out").rename(here / "moved")
    (here / "moved/params=40%/direct-seed0/result.json").unlink()  # as if it had been stopped just before its end
    assert sweep(*words, "--out", "moved", "--seeds", "2") == 0
    assert len(results("moved")) == 4


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_stopped_study_goes_on_where_its_data_are_now(jobs: str, here: Path) -> None:
    text = (here / "small_recipe.py").read_text().replace("def load(run):", "def load(run):\n" + NEEDS_FILE)
    (here / "moving_recipe.py").write_text(text)
    for name in ("old", "new"):
        (here / name).mkdir()
    (here / "old" / "images").touch()
    (here / "broken").touch()
    words = ["sweep", "moving_recipe:tiny", "--arms", "grown", "--out", "out", "--budgets", "50%", "--jobs", jobs]
    assert main([*words, "--data", "old"]) == 2
    (here / "broken").unlink()
    (here / "old" / "images").rename(here / "new" / "images")
    assert main([*words, "--data", "new", "--set", "workers=1"]) == 0


NEEDS_FILE = """    if not os.path.exists(f"{run.data.data_dir}/images"):
        raise ValueError("there are no images")
"""


def test_a_study_goes_on_with_another_number_of_jobs(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    """A run that was begun keeps its threads, though fewer would be left for each of several."""
    text = (here / "small_recipe.py").read_text()
    (here / "free_recipe.py").write_text(text.replace("threads=1", ""))
    for threads, budgets in ((2, "30%"), (1, "30%,60%")):
        monkeypatch.setattr("torch.get_num_threads", lambda threads=threads: threads)
        words = ["sweep", "free_recipe:tiny", "--arms", "grown", "--out", "out", "--budgets", budgets]
        assert main(words) == 0
    threads_of = [json.loads(path.read_text())["settings"]["threads"] for path in sorted(here.glob("out/*/*/run.json"))]
    assert threads_of == [2, 1]


def test_a_budget_that_is_named_twice_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("--budgets", "40%,0.4,40%", "--arms", "grown", "--out", "out") == 0
    assert [row["budget"] for row in results("out")] == ["params=40%"]


def test_what_growing_is_compared_with_can_be_an_arm() -> None:
    assert sweep("--budgets", "40%", "--arms", "grown,iss", "--out", "out") == 0
    assert [row["arm"] for row in results("out")] == ["grown", "iss"]
    assert all(float(row["params_frac"]) <= 0.4 for row in results("out"))


def test_several_runs_are_not_put_into_the_folder_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grow", "small_recipe:tiny", "--out", "one"]) == 0
    for words in (["grow", "small_recipe:tiny", "--seeds", "2"], ["sweep", "small_recipe:tiny", "--budgets", "30%"]):
        error = refusal(capsys, *words, "--out", "one")
        assert "one holds a single run; several need a folder of their own: give another --out" in error
    assert not list(Path("one").glob("*seed*"))
    error = refusal(capsys, "grow", "small_recipe:tiny", "--seeds", "2", "--out", "small_recipe.py")
    assert "small_recipe.py cannot be made (File exists); give another --out" in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("sweep small_recipe:tiny --budgets 30%,x", "'x' is not an amount"),
        ("sweep small_recipe:tiny --budgets 30% --arms grwn", "there is no arm 'grwn'; did you mean grown"),
        ("sweep small_recipe:tiny --budgets 30% --arms direct", "the arm direct trains the widths of the arm grown"),
        (
            "sweep small_recipe:tiny --arms uniform:cost=grown",
            "the arm uniform:cost=grown costs what the arm grown costs",
        ),
        (
            "sweep small_recipe:tiny --arms grown,search:cost=grown",
            "the arm search:cost=grown grows, and what it costs",
        ),
        ("sweep small_recipe:tiny --arms grown,grown:cost=grown", "give cost=grown to an arm of fixed structure (unif"),
        ("sweep small_recipe:tiny --arms grown,uniform:cost=dense", "costs what the arm dense costs: name both"),
        ("sweep small_recipe:tiny --arms grown,direct:of=morphnet", "trains the widths of the arm morphnet: name both"),
        ("sweep small_recipe:tiny --arms morphnet,uniform:of=morphnet", "of=morphnet goes with direct alone"),
        ("sweep small_recipe:tiny --arms grown,unifrm:cost=grown", "there is no arm 'unifrm'; did you mean uniform"),
        (
            "grow small_recipe:tiny --set cost_of=x",
            "cost_of sets the epochs of a fixed structure, but the method default",
        ),
        (
            "grow small_recipe:tiny --method uniform --set cost_of=x",
            "is not the folder of a finished run, so what it has",
        ),
        ("sweep small_recipe:tiny --budgets 30% --seeds 0", "--seeds must be a whole number of at least 1, got '0'"),
        ("sweep small_recipe:tiny --budgets 30% --jobs two", "--jobs must be a whole number of at least 1, got 'two'"),
        ("sweep small_recipe:tiny --budgets 30% --model x", "--model 'x' is not of the form MODULE:FUNCTION"),
        ("grow small_recipe:tiny --seeds 2 --resume", "go on when the same command is given again: leave out --resume"),
        ("sweep small_recipe:tiny --budgets 30% --method dense", "nothing grows under the method dense; name it by"),
        ("grow small_recipe:tiny --seeds two", "--seeds must be a whole number of at least 1, got 'two'"),
    ],
)
def test_bad_input(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refusal(capsys, *words.split())
    assert not Path("runs").exists() or not list(Path("runs").iterdir())


def test_a_table_of_a_metric_that_overflowed() -> None:
    assert mean_and_deviation([float("inf"), 1.0], 2) == "inf"
    assert mean_and_deviation([float("nan"), 1.0], 2) == "nan"


def test_a_table_has_files_latencies_and_what_failed(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    """One cell that fails loses none of the others; what is measured once is not measured again."""
    words = ["sweep", "small_recipe:tiny", "--budgets", "1%,40%", "--arms", "grown,uniform", "--out", "out"]
    assert main(words) == 2
    table = json.loads(Path("out/table.json").read_text())
    assert [each["title"] for each in table["experiments"]] == ["params 40%  grown", "params 40%  uniform"]
    assert len(table["failed"]) == 1
    assert "the budget of 1% params cannot be met" in table["failed"][0]
    assert "- failed: params 1%" in Path("out/table.md").read_text()
    assert all(set(each["latency_ms"]) == {"1", "16"} for each in table["experiments"])
    assert all(float(row["latency_ms_1"]) > 0 for row in results("out"))
    measured = Path("out/params=40%/grown-seed0/latency.json").read_bytes()
    output = capsys.readouterr().out
    assert "--- params 40%  grown  seed 0  (2 of 4 runs done" in output
    assert main([*words[:3], "40%", *words[4:]]) == 0
    assert Path("out/params=40%/grown-seed0/latency.json").read_bytes() == measured
