"""Label smoothing, MixUp and averaged weights: what each does to a run, and that a run without them is what it was."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

import meristem
from growing import timeless
from meristem.errors import MeristemError
from meristem_bench.data.arrays import Arrays
from meristem_bench.models.resnet_cifar import ResNetCifar
from meristem_bench.recipes.lookup import find_run
from meristem_bench.runs import Machine, OptimizerConfig, Run, Smoothing
from meristem_bench.runs.averaged_weights import AveragedWeights
from meristem_bench.runs.description import description, read_run
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.loop import evaluate, run_to_end, train_epoch
from meristem_bench.runs.task import Classification
from meristem_bench.runs.training import build
from meristem_bench.runs.training_loss import TrainingLoss
from watching import Watch, traces


def images(run: Run) -> Arrays:
    pixels = torch.randn(96, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    labels = pixels.mean((1, 2, 3)).gt(0).long()
    part = lambda first: (pixels[first : first + 32], labels[first : first + 32])  # noqa: E731
    return Arrays({"train": part(0), "validation": part(32), "test": part(64)})


def tiny(**changes: Any) -> Run:
    run = Run(
        name="tiny",
        about="A residual network of 8 channels.",
        model=lambda: ResNetCifar(blocks=(2, 1, 1), width=8, channels=1, classes=2),
        load=images,
        task=Classification(),
        epochs=4,
        batch=8,
        optimizer=OptimizerConfig(lr=0.1),
        machine=Machine(threads=1),
    )
    return run.replace(**changes)


# --- label smoothing and MixUp ---


def test_smoothed_labels_are_trained_and_not_evaluated() -> None:
    run = tiny(label_smoothing=0.2)
    outputs, targets = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    smoothed = TrainingLoss(run, torch.Generator())(outputs, targets)
    assert torch.equal(smoothed, F.cross_entropy(outputs, targets, label_smoothing=0.2))
    assert torch.equal(run.task.loss(outputs, targets), F.cross_entropy(outputs, targets))


def test_what_a_task_says_of_label_smoothing_holds_where_the_run_says_nothing() -> None:
    run = dataclasses.replace(tiny(), task=Classification(label_smoothing=0.1))
    outputs, targets = torch.randn(2, 3), torch.tensor([0, 1])
    loss = TrainingLoss(run, torch.Generator())(outputs, targets)
    assert torch.equal(loss, F.cross_entropy(outputs, targets, label_smoothing=0.1))


def test_a_task_without_labels_to_smooth_refuses() -> None:
    with pytest.raises(MeristemError, match="LanguageModel has no label smoothing: leave out label_smoothing"):
        find_run("ptb-small").with_settings({"label_smoothing": "0.1"})


def test_the_loss_of_mixed_inputs_is_that_of_mixed_labels() -> None:
    loss_of = TrainingLoss(tiny(mixup=0.4), torch.Generator().manual_seed(3))
    inputs, targets = torch.eye(6), torch.tensor([0, 1, 2, 0, 1, 2])
    mixed = loss_of.mix(inputs)
    assert torch.allclose(mixed.sum(1), torch.ones(6))
    shares = mixed @ F.one_hot(targets, 3).float()  # the rows of the inputs are their own names
    assert 0 < shares.max() < 1 or 1 in shares
    assert not torch.equal(mixed, inputs)
    outputs = torch.randn(6, 3)
    assert torch.allclose(loss_of(outputs, targets), F.cross_entropy(outputs, shares))


def test_mixup_of_what_are_no_real_numbers_is_refused() -> None:
    with pytest.raises(MeristemError, match=r"tiny: mixup mixes images and other real numbers, not torch\.int64"):
        TrainingLoss(tiny(mixup=0.2), torch.Generator()).mix(torch.arange(4))


# --- averaged weights ---


def test_averages_are_those_of_the_weights_and_statistics_of_all_steps() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    averages, expected = AveragedWeights(model, 0.9), [tensor.clone() for tensor in model.state_dict().values()]
    for step in range(1, 200):
        model(torch.randn(4, 2))
        with torch.no_grad():
            model[0].weight.normal_()
        averages.update(model, step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = [
            decay * old + (1 - decay) * new if old.is_floating_point() else new
            for old, new in zip(expected, model.state_dict().values(), strict=True)
        ]
    for found, wanted in zip(averages.network.state_dict().values(), expected, strict=True):
        assert torch.allclose(found, wanted, atol=1e-6)
    own = [tensor.clone() for tensor in model.state_dict().values()]
    with averages.in_place_of(model):
        assert torch.equal(model[0].weight, averages.network[0].weight)
    assert all(map(torch.equal, own, model.state_dict().values()))


def test_what_is_evaluated_and_kept_are_the_averages_of_a_network_that_grows(tmp_path: Path) -> None:
    """The same run by hand: weights as without averages, averages that follow the surgery."""
    run, folder = tiny(ema=0.8), Folder(tmp_path)
    result = run_to_end(run, folder, Watch())
    assert result["params_frac"] > 0.3
    plain = build(tiny(), None)  # a run that has no averages
    averaged = AveragedWeights(plain.model, 0.8)
    plain.grower.follow(averaged.network)
    step = plain.step

    def step_and_average() -> None:
        step()
        averaged.update(plain.model, plain.scheduler.last_epoch)

    plain.step = step_and_average  # type: ignore[method-assign]
    for _ in range(run.epochs):
        train_epoch(plain, Watch())
        plain.grower.step()
    kept = load_file(folder.model / "model.safetensors")
    for name, tensor in averaged.network.state_dict().items():
        assert name not in kept or torch.equal(kept[name], tensor), name
    small = meristem.load(folder.model, run.model())
    assert evaluate(run, images(run), small, "test") == result["test"]
    own = plain.grower.export()
    assert not torch.equal(next(own.parameters()), next(small.parameters()))


@pytest.mark.parametrize(
    "changes",
    [{"ema": 0.8}, {"mixup": 0.3, "label_smoothing": 0.1}, {"ema": 0.7, "depth": True, "method": "default:peak=1.3"}],
    ids=["ema", "mixed", "depth"],
)
def test_a_run_that_is_stopped_goes_on_with_the_same_bits(changes: dict[str, Any], tmp_path: Path) -> None:
    run, whole, stopped = tiny(**changes), Folder(tmp_path / "whole"), Folder(tmp_path / "stopped")
    run_to_end(run, whole, Watch())
    with pytest.raises(KeyboardInterrupt):
        run_to_end(run, stopped, Watch(lambda epoch, step: (epoch, step) == (2, 3)))
    torch.rand(3)
    run_to_end(read_run(stopped, tiny()), stopped, Watch())
    assert traces(stopped) == traces(whole)


def test_averages_and_gates_that_become_a_part_of_the_weights() -> None:
    run = tiny(ema=0.9, method="paper")
    with pytest.raises(MeristemError, match=r"makes its gates a part of them when fine-tuning begins: leave out ema"):
        run.replace(fine_tune=2)


# --- a run without them ---


def test_a_run_without_them_is_described_as_before_and_an_old_description_is_one() -> None:
    run = tiny()
    assert run.smoothing == Smoothing()
    old = {name: value for name, value in description(run)["settings"].items() if name not in NEW}
    assert set(run.settings) - set(old) == set(NEW)


NEW = ("label_smoothing", "mixup", "ema", "fused", "tf32")


def test_the_run_folder_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """Neither its description nor its checkpoint knows of the settings that are new."""
    folder, whole = Folder(tmp_path / "old"), Folder(tmp_path / "whole")
    run_to_end(tiny(), whole, Watch())
    with pytest.raises(KeyboardInterrupt):
        run_to_end(tiny(), folder, Watch(lambda epoch, step: (epoch, step) == (2, 1)))
    content = folder.read_description()
    settings = {name: value for name, value in content.pop("settings").items() if name not in NEW}
    content.pop("format")
    folder.write_description({**content, "settings": settings})
    again = read_run(folder, tiny())
    assert again.settings == tiny().settings
    run_to_end(again, folder, Watch())
    assert traces(folder) == traces(whole)
    assert timeless([folder.read_description()]) == [{"format": "meristem-run-1", **content, "settings": settings}]


# --- the device ---


def test_the_way_to_a_device_on_the_host_is_no_way() -> None:
    from meristem_bench.runs.transfer import moved

    tensor = torch.ones(2)
    assert moved(tensor, torch.device("cpu")) is tensor


def test_products_in_tf32_are_asked_of_a_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_float32_matmul_precision()
    Machine(tf32=True).prepare()
    assert torch.get_float32_matmul_precision() == before
    if not torch.cuda.is_available():
        with pytest.raises(MeristemError, match="the device 'cuda' cannot be used here"):
            Machine("cuda", tf32=True).prepare()
    assert Machine("cuda:1").on_cuda
    assert not Machine("cpu").on_cuda


def test_channels_last_with_fused_steps_is_the_same_network(tmp_path: Path) -> None:
    """The layout of memory and of kernels changes sums in their last bits and nothing else."""
    run = tiny(epochs=2)
    results = [
        run_to_end(run.replace(**more), Folder(tmp_path / str(number)), Watch())
        for number, more in enumerate([{}, {"channels_last": True, "fused": True}])
    ]
    assert results[0]["widths"] == results[1]["widths"]
    assert results[0]["test"]["loss"] == pytest.approx(results[1]["test"]["loss"], rel=1e-2)
