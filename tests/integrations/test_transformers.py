"""Growing in the Trainer of transformers: GPT-2 and a BERT classifier, resumed while they grow by its own resume."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import meristem
from meristem.errors import FileError
from other_libraries import ROOT, example, library

library("transformers")
library("accelerate")
from transformers import (  # noqa: E402
    BertConfig,
    BertForSequenceClassification,
    EarlyStoppingCallback,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from meristem.integrations.transformers import GrowerCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # what transformers warns of is not ours
transformers_gpt2 = example("transformers_gpt2")

EPOCHS, STEPS = 4, 3
TEXT = (ROOT / "LICENSE").read_text(encoding="utf-8")
# A line of the licence, and whether it lies in its second half.
LINES = [line.strip() for line in TEXT.splitlines() if len(line) > 40][: 8 * STEPS * 2]
SENTENCES = [
    {"input_ids": torch.tensor(list(line.ljust(32).encode())[:32]), "labels": number % 2}
    for pair in zip(LINES[: len(LINES) // 2], LINES[len(LINES) // 2 :], strict=False)
    for number, line in enumerate(pair)
][: 8 * STEPS]
LETTERS = transformers_gpt2.pieces(TEXT, 32)[: 8 * STEPS]


def gpt2() -> nn.Module:
    config = GPT2Config(vocab_size=128, n_positions=32, n_embd=16, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
    return GPT2LMHeadModel(config)


def bert() -> nn.Module:
    config = BertConfig(
        vocab_size=128,
        max_position_embeddings=32,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=24,
    )
    return BertForSequenceClassification(config)


class Losses(TrainerCallback):
    def __init__(self) -> None:
        self.found: dict[int, float] = {}

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **objects: Any) -> None:
        if "loss" in logs:
            self.found[state.global_step] = logs["loss"]


class Run:
    """A model built anew, and a Trainer with what a user would have in it."""

    def __init__(
        self, folder: Path, kind: Any = gpt2, grower: dict[str, Any] | None = None, callbacks: Any = (), **more: Any
    ) -> None:
        torch.manual_seed(0)
        self.model, self.losses = kind(), Losses()
        data = LETTERS if kind is gpt2 else SENTENCES
        settings = {"budget": "40%", "example_inputs": {"input_ids": data[0]["input_ids"][None]}}
        self.growing = GrowerCallback(**{**settings, "method": "default:peak=1.2", **(grower or {})})
        arguments = {
            "num_train_epochs": EPOCHS,
            "per_device_train_batch_size": 8,
            "learning_rate": 3e-3,
            "logging_steps": 1,
            "save_strategy": "steps",
            "save_steps": 1,
            "report_to": "none",
            "use_cpu": True,
            "disable_tqdm": True,
        }
        self.trainer = Trainer(
            self.model,
            TrainingArguments(output_dir=str(folder), **{**arguments, **more}),
            train_dataset=data,
            eval_dataset=data,
            callbacks=[self.growing, self.losses, *callbacks],
        )

    def train(self, checkpoint: Path | bool | None = None) -> Run:
        self.trainer.train(resume_from_checkpoint=str(checkpoint) if isinstance(checkpoint, Path) else checkpoint)
        return self


WAYS: dict[str, dict[str, Any]] = {
    "gpt2": {"kind": gpt2},
    "bert": {"kind": bert, "lr_scheduler_type": "cosine", "warmup_steps": 2},
    "bf16": {"bf16": True, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 4},
    "adafactor": {"optim": "adafactor"},
    "steps": {"grower": {"every_n_steps": 2}, "max_steps": EPOCHS * STEPS},
    "paper": {"grower": {"method": "paper"}},
}


@pytest.mark.parametrize("way", WAYS)
def test_train_resumes(way: str, tmp_path: Path) -> None:
    """From the end of an epoch and from its middle: losses, structure and weights are those of the whole run."""
    whole = Run(tmp_path, **WAYS[way]).train()
    total = EPOCHS * STEPS
    assert list(whole.losses.found) == list(range(1, total + 1))
    grower = whole.growing.grower
    assert grower.finished
    if way != "paper":
        assert grower.records[-1]["params_frac"] <= 0.4
    assert len({str(record["widths"]) for record in grower.records}) > 1
    for step in (1, STEPS, STEPS + 2):
        again = Run(tmp_path, **WAYS[way]).train(tmp_path / f"checkpoint-{step}")
        assert again.losses.found == {number: whole.losses.found[number] for number in range(step + 1, total + 1)}
        assert again.growing.grower.widths == grower.widths
        for (name, expected), got in zip(whole.model.named_parameters(), again.model.parameters(), strict=True):
            assert torch.equal(got, expected), name
    assert whole.trainer.evaluate()["eval_loss"] > 0
    small = grower.export()
    assert type(small) is type(whole.model)
    grower.save(tmp_path / "small")
    torch.manual_seed(0)
    loaded = meristem.load(tmp_path / "small", WAYS[way].get("kind", gpt2)())
    assert sum(each.numel() for each in loaded.parameters()) == sum(each.numel() for each in small.parameters())


def test_the_best_network_comes_back(tmp_path: Path) -> None:
    """As it was then, with its structure; early stopping ends a run that still grows."""
    run = Run(
        tmp_path,
        grower={"epochs": 20},
        callbacks=[EarlyStoppingCallback(early_stopping_patience=2)],
        eval_strategy="epoch",
        save_strategy="epoch",
        num_train_epochs=20,
        learning_rate=0.3,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
    ).train()
    best = Path(run.trainer.state.best_model_checkpoint)
    step = int(best.name.partition("-")[2])
    assert step < run.trainer.state.global_step < 20 * STEPS
    assert run.growing.grower.epoch == step // STEPS
    assert run.trainer.evaluate()["eval_loss"] == pytest.approx(run.trainer.state.best_metric, abs=1e-6)


def test_resume_from_elsewhere(tmp_path: Path) -> None:
    whole = Run(tmp_path / "one").train()
    shutil.copytree(tmp_path / "one" / "checkpoint-4", tmp_path / "moved")
    with pytest.raises(FileError, match=r"training goes on from step 4, but neither .* is the folder of a checkpoint"):
        Run(tmp_path / "two").train(tmp_path / "moved")
    again = Run(tmp_path / "two", grower={"resume_from": tmp_path / "moved"}).train(tmp_path / "moved")
    assert again.losses.found == {number: whole.losses.found[number] for number in range(5, EPOCHS * STEPS + 1)}
    with pytest.raises(FileError, match="the state of the grower belongs to another checkpoint than the weights"):
        Run(tmp_path / "three", grower={"resume_from": tmp_path / "one" / "checkpoint-5"}).train(tmp_path / "moved")


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(meristem.MeristemError, match="the grower is made when"):
        GrowerCallback("40%").grower.export()
    with pytest.raises(meristem.MeristemError, match="max_steps says how long to train"):
        Run(tmp_path, max_steps=2).train()
    run = Run(tmp_path, num_train_epochs=1, save_strategy="no").train()
    with pytest.raises(meristem.MeristemError, match=r"train\(\) is called again"):
        run.train()


def test_the_example(tmp_path: Path) -> None:
    small = transformers_gpt2.main(epochs=2, width=16, folder=tmp_path)
    assert isinstance(small, GPT2LMHeadModel)
    assert isinstance(transformers_gpt2.main(epochs=2, width=16, folder=tmp_path, resume=True), GPT2LMHeadModel)
