"""Growing in Lightning's own Trainer: it trains what a loop of your own trains, and resumes while the network grows."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import meristem
from meristem.errors import FileError
from meristem_bench.data.digits import digits
from meristem_bench.models.resnet_cifar import ResNetCifar
from other_libraries import example, library
from two_ranks import on_two_ranks

library("lightning")
from lightning.pytorch import Callback, Trainer  # noqa: E402
from lightning.pytorch.callbacks import EarlyStopping, EMAWeightAveraging, ModelCheckpoint  # noqa: E402
from lightning.pytorch.loggers import CSVLogger  # noqa: E402

from meristem.integrations.lightning import GrowerCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # what Lightning warns of is not ours
lightning_resnet = example("lightning_resnet")

EPOCHS, STEPS = 4, 3
TRAIN, VALIDATION = digits()["train"], digits()["validation"]
IMAGES, LABELS = TRAIN[0][: 16 * STEPS], TRAIN[1][: 16 * STEPS]


class Resumable(DataLoader[Any]):
    """Batches in order. Lightning asks for its place in an epoch, and expects it to go on from there."""

    done = start = 0

    def __iter__(self) -> Iterator[Any]:
        start, self.start = self.start, 0
        for number, batch in enumerate(super().__iter__()):
            if number >= start:
                self.done = number + 1
                yield batch

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.start = state["done"] % len(self)


def loader(images: Tensor = IMAGES, labels: Tensor = LABELS) -> Resumable:
    return Resumable(TensorDataset(images, labels), 16)


class Module(lightning_resnet.Digits):
    """That of the example, built the same each time."""

    def __init__(self) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            super().__init__(depth=8, width=8)


class Losses(Callback):
    """The loss of every batch, by its number."""

    def __init__(self) -> None:
        self.found: dict[int, float] = {}

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.found[trainer.current_epoch * STEPS + batch_idx] = float(outputs["loss"])


class Run:
    """A module built anew, and a Trainer with what a user would have in it."""

    def __init__(self, folder: Path, *callbacks: Callback, grower: dict[str, Any] | None = None, **more: Any) -> None:
        self.module, self.losses = Module(), Losses()
        settings = {"budget": "40%", "example_inputs": IMAGES[:1], "module": "model", "method": "default:peak=1.2"}
        self.growing = GrowerCallback(**{**settings, **(grower or {})})
        self.trainer = Trainer(
            callbacks=[self.growing, self.losses, *callbacks],
            default_root_dir=folder,
            accelerator="cpu",
            enable_progress_bar=False,
            enable_model_summary=False,
            **{"max_epochs": EPOCHS, "logger": False, **more},
        )

    def fit(self, path: Path | None = None) -> Run:
        self.trainer.fit(self.module, loader(), loader(*VALIDATION), ckpt_path=path)
        return self


def own_loop() -> tuple[list[float], nn.Module]:
    """The same training in a loop of one's own."""
    model = Module().model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    grower = meristem.Grower(model, optimizer, IMAGES[:1], budget="40%", epochs=EPOCHS, method="default:peak=1.2")
    losses = []
    for _ in range(EPOCHS):
        for images, labels in loader():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        scheduler.step()
        grower.step()
    return losses, model


def test_a_trainer_trains_what_a_loop_trains(tmp_path: Path) -> None:
    """To the last bit, and `test` tests the network that has grown."""
    run = Run(tmp_path, enable_checkpointing=False).fit()
    expected, model = own_loop()
    assert list(run.losses.found.values()) == expected
    grower = run.growing.grower
    assert [record["steps"] for record in grower.records] == [STEPS] * EPOCHS
    assert grower.records[-1]["params_frac"] <= 0.4
    assert "accuracy" in grower.records[-1]["metrics"]
    (result,) = run.trainer.test(run.module, loader(*VALIDATION), verbose=False)
    model.eval()
    right = (model(VALIDATION[0]).argmax(1) == VALIDATION[1]).float()
    assert result["accuracy"] == pytest.approx(float(right.mean()), abs=1e-6)
    assert isinstance(grower.export(), ResNetCifar)
    with pytest.raises(meristem.MeristemError, match="the grower is made when"):
        Run(tmp_path).growing.grower.export()


WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "validated": {},
    "mixed": {"precision": "bf16-mixed", "accumulate_grad_batches": 2, "gradient_clip_val": 0.5},
    "averaged": {"gradient_clip_val": 0.5},
    "paper": {"grower": {"method": "paper"}},
    "steps": {"grower": {"every_n_steps": 2}},
}


@pytest.mark.parametrize("way", WAYS)
def test_fit_resumes(way: str, tmp_path: Path) -> None:
    """From the end of an epoch, from its middle, and from its validation: the losses are those of the whole run."""

    def run(*more: Callback) -> Run:
        averaging = [EMAWeightAveraging(decay=0.8)] if way == "averaged" else []
        return Run(tmp_path, *averaging, *more, **WAYS[way])

    when = {"plain": {}, "validated": {"save_on_train_epoch_end": False}}.get(way, {"every_n_train_steps": 1})
    saving = ModelCheckpoint(tmp_path, "{epoch}-{step}", save_top_k=-1, **when)
    whole = run(saving).fit()
    assert set(whole.losses.found) == set(range(EPOCHS * STEPS))
    paths = sorted(tmp_path.glob("*.ckpt"), key=lambda path: path.stat().st_mtime_ns)
    assert len(paths) >= EPOCHS
    for path in dict.fromkeys([paths[1], paths[2], paths[len(paths) // 2]]):
        again = run().fit(path)
        assert again.losses.found
        assert len(again.losses.found) < len(whole.losses.found)
        assert again.losses.found == {number: whole.losses.found[number] for number in again.losses.found}
        assert again.growing.grower.widths == whole.growing.grower.widths
        for (name, expected), got in zip(whole.module.named_parameters(), again.module.parameters(), strict=True):
            assert torch.equal(got, expected), name


def test_a_checkpoint_is_tested_as_it_had_grown(tmp_path: Path) -> None:
    saving = ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1)
    run = Run(tmp_path, saving, grower={"method": "default"}).fit()
    (last,) = run.trainer.test(run.module, loader(*VALIDATION), verbose=False)
    path = tmp_path / f"epoch={EPOCHS - 1}.ckpt"
    fresh = Run(tmp_path, grower={"method": "default"})
    (again,) = fresh.trainer.test(fresh.module, loader(*VALIDATION), ckpt_path=path, verbose=False)
    assert again == last
    assert fresh.module.model.stem[0].weight.shape == run.module.model.stem[0].weight.shape
    early = tmp_path / "epoch=0.ckpt"
    (before,) = run.trainer.test(run.module, loader(*VALIDATION), ckpt_path=early, verbose=False)
    assert run.growing.grower.epoch == 1
    (same,) = fresh.trainer.test(Module(), loader(*VALIDATION), ckpt_path=early, verbose=False)
    assert before == same


def test_early_stopping(tmp_path: Path) -> None:
    run = Run(tmp_path, EarlyStopping("accuracy", mode="max", patience=1, min_delta=2.0), enable_checkpointing=False)
    run.fit()
    assert run.growing.grower.epoch == 2


def test_refusals(tmp_path: Path) -> None:
    for grower, message in (
        ({"module": ""}, None),
        ({"budget": "0.0001%"}, "budget"),
    ):
        if message is not None:
            with pytest.raises(meristem.MeristemError, match=message):
                Run(tmp_path, grower=grower).fit()
    with pytest.raises(meristem.MeristemError, match="give the Trainer max_epochs or max_steps, or"):
        Run(tmp_path, max_epochs=-1, enable_checkpointing=False).fit()
    path = tmp_path / "weights.ckpt"
    run = Run(tmp_path, enable_checkpointing=False, max_epochs=1).fit()
    run.trainer.save_checkpoint(path)
    kept = torch.load(path, weights_only=False)
    kept["callbacks"].pop("GrowerCallback")
    torch.save(kept, path)
    with pytest.raises(
        FileError, match=r"holds a network that has grown .* written while the same callback was in use"
    ):
        Run(tmp_path).fit(path)


def test_the_example(tmp_path: Path) -> None:
    small = lightning_resnet.main(epochs=2, depth=8, width=8, folder=tmp_path)
    assert isinstance(small, ResNetCifar)
    assert sum(each.numel() for each in small.parameters()) <= 0.4 * sum(
        each.numel() for each in ResNetCifar(8, classes=10, channels=1, width=8).parameters()
    )
    assert (tmp_path / "last.ckpt").exists()


TWO_RANKS = """
from other_libraries import library

library("lightning")
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from meristem.integrations.lightning import GrowerCallback

EPOCHS = 4
generator = torch.Generator().manual_seed(0)
data = TensorDataset(
    torch.randn(64, 6, generator=generator), torch.randint(0, 3, (64,), generator=generator)
)

class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3))

    def training_step(self, batch):
        return F.cross_entropy(self.model(batch[0]), batch[1])

    def configure_optimizers(self):
        return optim.AdamW(self.parameters(), lr=3e-3)

class Wrapped(Callback):
    def on_train_end(self, trainer, pl_module):
        self.seen = type(trainer.strategy.model).__name__

def fit(epochs, kept=None):
    torch.manual_seed(0)
    growing = GrowerCallback("40%", data[:1][0], module="model", epochs=EPOCHS, method="search:peak=1.2")
    wrapped, module = Wrapped(), Module()
    trainer = Trainer(
        max_epochs=epochs, accelerator="cpu", strategy="ddp", devices=2, logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[growing, wrapped, ModelCheckpoint("kept", save_last=True)],
    )
    trainer.fit(module, DataLoader(data, 8), ckpt_path=kept)
    return growing.grower, wrapped.seen
"""

ON_EACH = """
os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), GROUP_RANK="0", LOCAL_WORLD_SIZE="2", WORLD_SIZE="2")
os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="1", TORCHELASTIC_RUN_ID="test")
fit(2)
resumed, _ = fit(EPOCHS, "kept/last.ckpt")
whole, found["wrapper"] = fit(EPOCHS)
digests = [digest(dict(grower.model.named_parameters())) for grower in (whole, resumed)]
found["alike"] = [alike(masks_of(whole)), alike(digests[0]), digests[0] == digests[1]]
found["moved"] = len({str(record["widths"]) for record in whole.records}) > 1
"""


def test_two_processes(tmp_path: Path) -> None:
    """Lightning's wrapper follows, and a run that is resumed ends with the same bits on both ranks."""
    found = on_two_ranks(TWO_RANKS, ON_EACH, tmp_path)
    assert found == {"wrapper": "DistributedDataParallel", "alike": [True, True, True], "moved": True}


def test_the_loggers_of_the_trainer_are_told_what_a_record_holds(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path, name="a", version=0)
    run = Run(tmp_path, logger=logger).fit()
    rows = list(csv.DictReader((tmp_path / "a/version_0/metrics.csv").read_text().splitlines()))
    told = [row for row in rows if row["cost/params_frac"]]
    assert [int(row["step"]) for row in told] == [STEPS * (epoch + 1) for epoch in range(EPOCHS)]
    records = run.growing.grower.records
    for row, record in zip(told, records, strict=True):
        assert float(row["cost/params_frac"]) == pytest.approx(record["params_frac"])
        group, width = next(iter(record["widths"].items()))
        assert float(row[f"width/{group}"]) == pytest.approx(width / run.growing.grower.space.full[group])
    assert not [name for name in rows[0] if name.startswith("metrics/")], "those are the module's own to log"
