"""Runs: the same seed gives the same bits, whatever stops a run in between; what lies in the folder is true."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import meristem
from meristem.errors import FileError, MeristemError
from meristem_bench.data.arrays import Arrays
from meristem_bench.runs import Machine, OptimizerConfig, Run
from meristem_bench.runs.description import read_run
from meristem_bench.runs.folder import Folder, free_folder, latest_folder, write_json
from meristem_bench.runs.loop import evaluate, run_to_end, train_epoch
from meristem_bench.runs.result import finished_result
from meristem_bench.runs.task import Classification
from meristem_bench.runs.training import Training, build
from watching import Watch, traces


def sorting(run: Run) -> Arrays:
    """Which of the first three numbers is the largest."""
    inputs = torch.randn(128, 6, generator=torch.Generator().manual_seed(0))
    rows = {"train": slice(0, 64), "validation": slice(64, 96), "test": slice(96, 128)}
    return Arrays(
        {name: (inputs[part], inputs[part, :3].argmax(1)) for name, part in rows.items()},
        augment=lambda x, generator: x + 0.01 * torch.randn(x.shape, generator=generator),
    )


def network() -> nn.Module:
    """Uses the global random state while it trains, too: dropout."""
    return nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 3))


def tiny(**changes: Any) -> Run:
    run = Run(
        name="tiny",
        about="A net of 24 hidden units.",
        model=network,
        load=sorting,
        task=Classification(),
        epochs=5,
        batch=16,
        optimizer=OptimizerConfig(lr=0.1, weight_decay=1e-4),
        machine=Machine(threads=1),
    )
    return run.replace(**changes)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Any, ...]]:
    """What the run of a method leaves when nothing stops it."""

    @cache
    def left(method: str = "default") -> tuple[Any, ...]:
        folder = Folder(tmp_path_factory.mktemp(method))
        run_to_end(tiny(method=method), folder, Watch())
        return traces(folder)

    return left


# --- the same bits ---

METHODS = ["default", "search", "random", "gates", "paper", "uniform", "iss", "dense"]
MOMENTS = [(0, 1), (0, 4), (1, 0), (3, 2), (4, 4), (5, 0)]  # epochs finished, steps of the next


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_bits(method: str, tmp_path: Path, whole: Callable[..., Any]) -> None:
    second, other = (Folder(tmp_path / name) for name in ("second", "other"))
    run_to_end(tiny(method=method), second, Watch())
    run_to_end(tiny(method=method, seed=1), other, Watch())
    assert traces(second) == whole(method)
    assert traces(other)[1] != whole(method)[1]


@pytest.mark.parametrize(
    ("method", "at"),
    [*(("default", at) for at in MOMENTS), *((method, (3, 2)) for method in METHODS if method != "default")],
)
def test_a_stopped_run_goes_on_with_the_same_bits(
    method: str, at: tuple[int, int], tmp_path: Path, whole: Callable[..., Any]
) -> None:
    stopped = Folder(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_to_end(tiny(method=method), stopped, Watch(lambda epoch, step: (epoch, step) == at))
    torch.manual_seed(123)  # another process has another random state
    watch = Watch()
    run_to_end(read_run(stopped, tiny()), stopped, watch)
    assert watch.resumed_at == at[0]
    assert traces(stopped) == whole(method)


@pytest.mark.parametrize("before", [True, False])
def test_a_run_killed_around_its_checkpoint_goes_on(
    before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Callable[..., Any]
) -> None:
    stopped, save = Folder(tmp_path), Training.save
    for epoch in (1, 4):

        def killed(self: Training, path: Path, epoch: int = epoch) -> None:
            if self.grower.epoch != epoch or not before:
                save(self, path)
            if self.grower.epoch == epoch:
                raise KeyboardInterrupt

        monkeypatch.setattr(Training, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            run_to_end(tiny(), stopped, Watch())
        monkeypatch.undo()
    run_to_end(tiny(), stopped, Watch())
    assert traces(stopped) == whole()


def test_a_run_killed_while_it_hands_over_does_that_again(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    run_to_end(tiny(), folder, Watch())
    expected = traces(folder)
    folder.result.write_text("{")
    (folder.model / "model.safetensors").write_bytes(b"half")
    assert finished_result(folder) is None
    run_to_end(tiny(), folder, Watch())
    assert traces(folder) == expected


# --- what lies in the folder ---


def test_the_folder_tells_what_was_run_and_what_came_out(tmp_path: Path) -> None:
    folder, watch = Folder(tmp_path), Watch()
    result = run_to_end(tiny(budget=meristem.Budget(params=0.5, macs="60%")), folder, watch)
    description = folder.read_description()
    settings = description["settings"]
    assert settings["budget"] == "params=0.5,macs=60%"
    assert (settings["epochs"], settings["seed"], settings["threads"]) == (5, 0, 1)
    assert {"meristem", "torch", "python"} <= set(description["versions"])
    assert read_run(folder, tiny()) == tiny(budget=meristem.Budget(params="0.5", macs="60%"))
    assert [record["epoch"] for record in watch.records] == [1, 2, 3, 4, 5]
    assert result == json.loads(folder.result.read_text()) == finished_result(folder)
    assert result["params_frac"] <= 0.5
    assert result["full"]["params"] == sum(parameter.numel() for parameter in network().parameters())
    assert result["params"] / result["full"]["params"] == pytest.approx(result["params_frac"])
    assert result["spend_macs"] / result["full"]["spend_macs"] == pytest.approx(result["spend_frac"])
    assert result["full"]["spend_macs"] == 3 * 5 * 64 * result["full"]["macs"]  # epochs, samples


def test_the_network_in_the_folder_is_the_one_that_was_tested(tmp_path: Path) -> None:
    folder, run = Folder(tmp_path), tiny()
    result = run_to_end(run, folder, Watch())
    again = meristem.load(folder.model, network())
    assert evaluate(run, run.load(run), again, "test") == result["test"]
    assert result["test"]["accuracy"] > 0.5


def test_the_full_model_spends_all_and_stays_whole(tmp_path: Path) -> None:
    folder, watch = Folder(tmp_path), Watch()
    result = run_to_end(tiny(method="dense"), folder, watch)
    assert (result["params_frac"], result["macs_frac"], result["spend_frac"]) == (1.0, 1.0, 1.0)
    assert result["spend_macs"] == result["full"]["spend_macs"]
    assert {name: list(p.shape) for name, p in meristem.load(folder.model, network()).named_parameters()} == {
        name: list(p.shape) for name, p in network().named_parameters()
    }


def test_the_full_model_is_trained_by_plain_sgd() -> None:
    """The run of the full model is the plain loop anyone would write, bit for bit."""
    training = build(tiny(method="dense"), None)
    torch.manual_seed(0)
    plain = network()
    optimizer = torch.optim.SGD(plain.parameters(), 0.1, 0.9, weight_decay=1e-4)
    order = torch.Generator().manual_seed(0)
    state = torch.get_rng_state()
    train_epoch(training, Watch())
    torch.set_rng_state(state)
    for step, (inputs, targets) in enumerate(training.data.train(16, order)):
        optimizer.param_groups[0]["lr"] = 0.1 * 0.5 * (1 + math.cos(math.pi * step / 20))
        optimizer.zero_grad()
        nn.functional.cross_entropy(plain(inputs), targets).backward()
        optimizer.step()
    assert all(
        torch.equal(mine, theirs) for mine, theirs in zip(training.model.parameters(), plain.parameters(), strict=True)
    )


def test_both_learn_at_the_same_rate_along_a_cosine() -> None:
    for method in ("default", "dense"):
        training = build(tiny(method=method), None)
        rates = []
        for _ in range(training.data.steps(16) * 5):
            rates.append(training.optimizer.param_groups[0]["lr"])
            training.optimizer.step()
            training.scheduler.step()
        assert rates[0] == 0.1
        assert rates[10] == pytest.approx(0.05)
        assert rates == sorted(rates, reverse=True)
        assert training.optimizer.param_groups[0]["lr"] == pytest.approx(0)


def test_images_in_half_precision_and_channels_last(tmp_path: Path) -> None:
    def images(run: Run) -> Arrays:
        split = (torch.randn(32, 3, 6, 6), torch.arange(32) % 2)
        return Arrays(dict.fromkeys(("train", "validation", "test"), split))

    def convolutions() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)
        )

    run = tiny(model=convolutions, load=images, bf16=True, channels_last=True, epochs=3)
    assert math.isfinite(run_to_end(run, Folder(tmp_path), Watch())["test"]["loss"])


# --- what is refused ---


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": "0"}, "epochs must be at least 1, got 0"),
        ({"epochs": "ten"}, "epochs must be a whole number, got 'ten'"),
        ({"epochs": "2.5"}, "epochs must be a whole number, got '2.5'"),
        ({"batch": "-1"}, "batch must be at least 1, got -1"),
        ({"lr": "fast"}, "lr must be a number, got 'fast'"),
        ({"lr": "nan"}, "lr must be a number, got 'nan'"),
        ({"lr": "-0.1"}, "lr must be a number of at least 0, got -0.1"),
        ({"momentum": "1"}, "momentum must be less than 1, got 1.0"),
        ({"warmup": "9", "epochs": "4"}, "the warmup of 9 epochs is longer than the run, which has 4"),
        ({"seed": "-1"}, "seed must be a number of at least 0, got -1"),
        ({"seed": str(2**64)}, "seed must be at most"),
        ({"bf16": "perhaps"}, "bf16 must be yes or no, got 'perhaps'"),
        ({"method": "defualt"}, "there is no method 'defualt'; did you mean default?"),
        ({"epoch": "3"}, "a run has no setting 'epoch'; did you mean epochs?"),
        ({"model": "x"}, "a run has no setting 'model'"),
        ({"budget": "params"}, "params=36%"),
    ],
)
def test_settings_that_cannot_be_meant(settings: dict[str, str], message: str) -> None:
    with pytest.raises(MeristemError, match=message):
        tiny().with_settings(settings)


def test_settings_survive_the_way_through_json() -> None:
    for run in (tiny(), tiny(lr=1 / 3, data_dir="/x y", bf16=True, budget=meristem.Budget(macs=100_000, spend="30%"))):
        again = tiny().with_settings(json.loads(json.dumps(run.settings)))
        assert again.settings == run.settings
        assert str(again.growth.budget) == str(run.growth.budget)


def test_trouble_with_the_data_is_the_users_to_mend(tmp_path: Path) -> None:
    def broken(run: Run) -> Arrays:
        raise ValueError("the file is damaged")

    with pytest.raises(MeristemError, match="tiny: the file is damaged"):
        run_to_end(tiny(load=broken), Folder(tmp_path), Watch())
    with pytest.raises(MeristemError, match="tiny: a batch of 65 is larger than the 64 training samples"):
        run_to_end(tiny(batch=65), Folder(tmp_path), Watch())
    assert not Folder(tmp_path).description.exists()


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "meta"])
def test_a_device_that_is_not_there(device: str) -> None:
    with pytest.raises(MeristemError, match=f"the device '{device}' cannot be used here: "):
        build(tiny(device=device), None)


def test_a_loss_that_explodes_stops_the_run_and_keeps_what_was_good(tmp_path: Path) -> None:
    class Exploding(Classification):
        def loss(self, outputs: Any, targets: torch.Tensor) -> torch.Tensor:
            steps.append(1)
            return super().loss(outputs, targets) * (math.nan if len(steps) > 10 else 1.0)

    steps: list[int] = []
    folder = Folder(tmp_path)
    with pytest.raises(
        MeristemError, match=r"the loss became nan in epoch 3; lower the learning rate, e\.g\. --set lr"
    ):
        run_to_end(tiny(task=Exploding()), folder, Watch())
    assert len(folder.history.read_text().splitlines()) == 2
    watch = Watch()
    run_to_end(tiny(), folder, watch)
    assert watch.resumed_at == 2


@pytest.mark.parametrize("method", ["default", "dense"])
def test_a_broken_or_foreign_checkpoint_is_refused_and_nothing_is_lost(method: str, tmp_path: Path) -> None:
    folder, run = Folder(tmp_path), tiny(method=method)
    with pytest.raises(KeyboardInterrupt):
        run_to_end(run, folder, Watch(lambda epoch, step: epoch == 2))
    good, history = folder.checkpoint.read_bytes(), folder.history.read_bytes()
    damaged = bytearray(good)
    damaged[len(good) // 2] ^= 1
    for content in (b"", b"nonsense", good[:-1], bytes(damaged)):
        folder.checkpoint.write_bytes(content)
        with pytest.raises(FileError, match=r"checkpoint\.ckpt"):
            run_to_end(run, folder, Watch())
        assert folder.history.read_bytes() == history
    folder.checkpoint.write_bytes(good)
    other = "dense" if method == "default" else "default"
    with pytest.raises(FileError, match=r"checkpoint\.ckpt"):
        run_to_end(tiny(method=other), folder, Watch())
    build(run, None).grower.checkpoint(folder.checkpoint, note="by hand")
    with pytest.raises(FileError, match="was not written by a run of meristem grow"):
        run_to_end(run, folder, Watch())
    folder.checkpoint.write_bytes(good)
    run_to_end(run, folder, Watch())


def test_other_data_are_not_taken_for_those_of_the_run(tmp_path: Path) -> None:
    """Another number of samples would bend the learning rate and mix what is trained on with what is held out."""

    def fewer(run: Run) -> Arrays:
        splits = dict(sorting(run).splits)
        return Arrays({**splits, "train": splits["test"]})

    folder = Folder(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_to_end(tiny(), folder, Watch(lambda epoch, step: epoch == 2))
    with pytest.raises(FileError, match="had 4 steps per epoch, but the data have 2 now: give it the data it was"):
        run_to_end(tiny(load=fewer), folder, Watch())
    run_to_end(tiny(), folder, Watch())


def test_a_run_of_something_else_is_not_taken_for_this_one(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with pytest.raises(FileError, match=r"is not the folder of a run: it holds no run\.json"):
        read_run(folder, tiny())
    with pytest.raises(FileError, match="is no folder"):
        Folder(tmp_path / "nowhere").read_description()
    for content, message in (("{", "damaged"), ("[]", "damaged"), ("{}", "has the format None")):
        folder.description.write_text(content)
        with pytest.raises(FileError, match=message):
            folder.read_description()
    folder.write_description({"name": "other", "settings": {}})
    with pytest.raises(MeristemError, match="holds a run of 'other', not of 'tiny'"):
        read_run(folder, tiny())
    folder.write_description({"name": "tiny", "settings": {"epochs": None}})
    with pytest.raises(MeristemError, match="epochs must be a whole number, got 'None'"):
        read_run(folder, tiny())
    folder.write_description({"name": "tiny"})
    with pytest.raises(MeristemError, match="is damaged: it has no settings"):
        read_run(folder, tiny())


# --- folders ---


def test_a_folder_on_a_disk_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "runs").symlink_to("/nowhere/disk")
    with pytest.raises(FileError, match=r"cannot be made \(File exists\); give another --out"):
        free_folder(tmp_path / "runs" / "tiny-seed1")


def test_free_and_latest_folders(tmp_path: Path) -> None:
    base = tmp_path / "runs" / "tiny-seed1"
    with pytest.raises(FileError, match=r"there is no run .*tiny-seed1 to go on with"):
        latest_folder(base)
    folders = [free_folder(base) for _ in range(3)]
    assert [folder.path.name for folder in folders] == ["tiny-seed1", "tiny-seed1-2", "tiny-seed1-3"]
    for folder in (folders[2], folders[0]):
        write_json(folder.description, {})
    free_folder(base.with_name("tiny-seed10")).write_description({})
    for age, folder in enumerate((folders[0], folders[2])):
        os.utime(folder.description, (1000 - age, 1000 - age))
    assert latest_folder(base).path == folders[0].path


def test_a_folder_is_held_by_one_and_given_back_when_nothing_ran(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "run")
    folder.reserve()
    with folder.lock(), pytest.raises(FileError, match="another process is running in"), folder.lock():
        pass
    assert not folder.path.exists()
    folder.reserve()
    folder.history.touch()  # as a start leaves it that was killed
    folder.reserve()
    with folder.lock():
        (folder.path / "mine.txt").touch()
    with pytest.raises(FileError, match=r"is not empty \(mine\.txt lies there\); give another --out"):
        folder.reserve()
