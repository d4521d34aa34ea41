"""Optimizers by kind: as text, as what torch makes of it, and in a run that grows and is stopped."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import optim

from meristem.control.budget import Budget
from meristem.errors import MeristemError
from meristem_bench.data.text_bytes import TextBytes
from meristem_bench.models.gpt import GPT
from meristem_bench.recipes.lookup import find_run
from meristem_bench.runs import DataConfig, GrowthConfig, Machine, OptimizerConfig, Run
from meristem_bench.runs.description import read_run
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.loop import run_to_end, train_epoch
from meristem_bench.runs.optimizer_kind import (
    SGD,
    AdamW,
    Lion,
    Muon,
    NAdam,
    OptimizerKind,
    RAdam,
    parse_optimizer_kind,
)
from meristem_bench.runs.result import finished_result
from meristem_bench.runs.task import ByteLanguageModel
from meristem_bench.runs.training import Training, build, build_model
from other_libraries import library
from watching import Watch, traces


def counting(run: Run) -> TextBytes:
    text = torch.arange(300, dtype=torch.int64).remainder(7).to(torch.uint8)
    return TextBytes({"train": text, "validation": text[:40], "test": text[:50]}, run.data.context, run.data.samples)


def small_gpt(classes: int, context: int) -> GPT:
    return GPT(classes, context, channels=12, heads=3, blocks=3)


def tiny(**changes: Any) -> Run:
    run = Run(
        name="tiny",
        about="A GPT of 12 channels.",
        model=small_gpt,
        load=counting,
        task=ByteLanguageModel(),
        epochs=4,
        batch=4,
        optimizer=OptimizerConfig(
            lr=0.01,
            warmup=0.5,
            kind=AdamW((0.9, 0.99)),
            momentum=0.0,
            weight_decay=0.1,
            decays=find_run("gpt-wikitext2").optimizer.decays,
            clip=1.0,
        ),
        growth=GrowthConfig(Budget(params="50%"), depth=True),
        data=DataConfig(context=6, samples=120),
        machine=Machine(threads=1),
    )
    return run.replace(**changes)


@pytest.mark.parametrize(
    "kind", [SGD(), Muon(), AdamW(), AdamW((0.9, 0.95)), AdamW((1 / 3, 0.0)), Lion(), NAdam(), RAdam((0.8, 0.9))]
)
def test_text_and_back(kind: OptimizerKind) -> None:
    assert parse_optimizer_kind(str(kind)) == kind
    assert parse_optimizer_kind("adamw") == AdamW()


@pytest.mark.parametrize("text", ["", "adam", "sgd/0.9", "adamw/0.9", "adamw/0.9,x", "adamw/0.9,0.9,0.9"])
def test_what_is_not_understood(text: str) -> None:
    with pytest.raises(
        MeristemError,
        match=r"there is no optimizer .*; write sgd, adamw, nadam, radam, lion or muon; adamw/",
    ):
        parse_optimizer_kind(text)


def test_what_does_not_go_together() -> None:
    with pytest.raises(MeristemError, match="adamw has betas instead of a momentum: set momentum=0 and nesterov=no"):
        find_run("digits").with_settings({"optimizer_kind": "adamw"})
    with pytest.raises(MeristemError, match="nesterov needs a momentum, but momentum is 0"):
        OptimizerConfig(0.1, momentum=0.0, nesterov=True)
    with pytest.raises(MeristemError, match=r"the betas of adamw must be at least 0 and less than 1, got \(0.9, 1.0\)"):
        parse_optimizer_kind("adamw/0.9,1")
    with pytest.raises(MeristemError, match=r"optimizer_kind must be a kind of optimizer, got 'adamw' \(str\)"):
        OptimizerConfig(0.1, kind="adamw")  # type: ignore[arg-type]
    for text in ("nadam", "radam", "lion", "muon"):
        with pytest.raises(MeristemError, match=f"torch has no fused {text}: leave out fused"):
            tiny(optimizer_kind=parse_optimizer_kind(text), fused=True)


def test_torch_gets_the_numbers() -> None:
    model = build_model(tiny(), counting(tiny()))
    adamw = tiny().optimizer.build(model)
    assert type(adamw) is optim.AdamW
    decays = [(group["lr"], group["betas"], group["weight_decay"]) for group in adamw.param_groups]
    assert decays == [(0.01, (0.9, 0.99), 0.1), (0.01, (0.9, 0.99), 0.0)]
    sgd = find_run("resnet50-imagenet").optimizer.build(model)
    assert type(sgd) is optim.SGD
    assert (sgd.defaults["momentum"], sgd.defaults["nesterov"]) == (0.9, True)
    changed = find_run("digits").with_settings({"optimizer_kind": "adamw/0.8,0.9", "momentum": 0})
    assert changed.optimizer.kind == AdamW((0.8, 0.9))
    assert changed.settings["optimizer_kind"] == "adamw/0.8,0.9"


def test_muon_has_the_matrices_that_are_multiplied_and_adamw_the_rest() -> None:
    model = build_model(tiny(), counting(tiny()))
    muon, adamw = tiny(optimizer_kind=Muon()).optimizer.build(model).all
    assert (type(muon), type(adamw)) == (optim.Muon, optim.AdamW)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    matrices = {names[id(each)] for group in muon.param_groups for each in group["params"]}
    assert matrices == {name for name, p in model.named_parameters() if p.dim() == 2} - {
        "tokens.weight",
        "positions.weight",
    }
    decays = {names[id(p)]: group["weight_decay"] for group in adamw.param_groups for p in group["params"]}
    assert decays["tokens.weight"] == 0.0
    assert {*decays, *matrices} == set(names.values())
    only = OptimizerConfig(0.1, kind=Muon()).build(torch.nn.Linear(2, 2, bias=False))
    assert type(only) is optim.Muon, "there is nothing else"


def test_without_lion_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lion_pytorch", None)
    with pytest.raises(MeristemError, match="lion is no optimizer of torch's: pip install lion-pytorch"):
        build(tiny(optimizer_kind=Lion()), None)


# --- in a run ---


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer_kind": Muon(), "momentum": 0.9},
        {"optimizer_kind": Lion(), "lr": 1e-3},
        {"optimizer_kind": NAdam()},
        {"optimizer_kind": RAdam()},
        {"fused": True},
    ],
    ids=lambda changes: str(changes.get("optimizer_kind", "fused")),
)
def test_runs_with_other_optimizers_grow_and_go_on_with_the_same_bits(changes: dict[str, Any], tmp_path: Path) -> None:
    if isinstance(changes.get("optimizer_kind"), Lion):
        library("lion_pytorch")
    run, whole, stopped = tiny(**changes), Folder(tmp_path / "whole"), Folder(tmp_path / "stopped")
    result = run_to_end(run, whole, Watch())
    assert 0.4 < result["params_frac"] <= 0.5
    assert result["test"]["bits_per_byte"] < 8
    with pytest.raises(KeyboardInterrupt):
        run_to_end(run, stopped, Watch(lambda epoch, step: (epoch, step) == (2, 3)))
    run_to_end(read_run(stopped, run), stopped, Watch())
    assert traces(stopped) == traces(whole)


def decayed_names(training: Training) -> set[str]:
    """The parameters of the live model in the param group that is decayed."""
    decayed = {id(p) for group in training.optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    return {name for name, parameter in training.model.named_parameters() if id(parameter) in decayed}


def test_param_groups_are_kept_while_it_grows_and_the_rate_rises_first() -> None:
    training = build(tiny(), None)
    rates: list[float] = []

    def note_rate(epoch: int, step: int) -> bool:
        rates.append(training.optimizer.param_groups[1]["lr"])
        return False

    for _ in range(4):
        train_epoch(training, Watch(note_rate))
        training.grower.step()
        named = dict(training.model.named_parameters())
        wanted = {name for name in named if training.run.optimizer.decays(name, named[name])}
        assert decayed_names(training) == wanted
        optimized = {id(p) for group in training.optimizer.param_groups for p in group["params"]}
        assert optimized >= {id(parameter) for parameter in named.values()}
    assert rates[0] < rates[1] > rates[2] > rates[-1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A run that nothing stops."""
    folder = Folder(tmp_path_factory.mktemp("whole"))
    run_to_end(tiny(), folder, Watch())
    return folder


def test_it_learns_and_lands_on_its_budget(whole: Folder) -> None:
    result = finished_result(whole)
    assert 0.4 < result["params_frac"] <= 0.5
    assert result["test"]["bits_per_byte"] < 8


@pytest.mark.parametrize("moment", [(1, 0), (2, 3)])
def test_a_run_that_is_stopped_goes_on_with_the_same_bits(
    moment: tuple[int, int], tmp_path: Path, whole: Folder
) -> None:
    stopped = Folder(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_to_end(tiny(), stopped, Watch(lambda epoch, step: (epoch, step) == moment))
    torch.rand(7)
    run_to_end(tiny(), stopped, Watch())
    assert traces(stopped) == traces(whole)
