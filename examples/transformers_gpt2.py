"""A small GPT-2 that learns the letters of this project's licence, grown to 40 % by the Trainer of transformers.

The three lines that meristem needs are marked. Run it again with ``--resume``, also after it was killed, and it goes on
from its last checkpoint.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from meristem.integrations.transformers import GrowerCallback  # 1

TEXT = Path(__file__).resolve().parent.parent / "LICENSE"


def pieces(text: str, length: int) -> list[dict[str, torch.Tensor]]:
    """The text in pieces of so many letters, each its own labels."""
    letters = torch.tensor(list(text.encode("ascii", "ignore")))
    return [{"input_ids": piece, "labels": piece} for piece in letters[: len(letters) // length * length].split(length)]


def main(epochs: int, width: int, folder: Path, resume: bool = False) -> torch.nn.Module:
    torch.manual_seed(0)
    data = pieces(TEXT.read_text(encoding="utf-8"), 64)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=128, n_positions=64, n_embd=width, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
    )
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=16,
        learning_rate=3e-3,
        warmup_steps=5,
        save_strategy="epoch",
        logging_strategy="epoch",
        report_to="none",
        use_cpu=True,
    )
    growing = GrowerCallback(budget="40%", example_inputs={"input_ids": data[0]["input_ids"][None]})  # 2
    trainer = Trainer(model, arguments, train_dataset=data, eval_dataset=data[:16], callbacks=[growing])  # 3
    trainer.train(resume_from_checkpoint=resume)
    print(trainer.evaluate())
    print(growing.grower)
    return growing.grower.export()  # a plain GPT2LMHeadModel


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--folder", type=Path, default=Path("runs/transformers"))
    parser.add_argument("--resume", action="store_true")
    main(**vars(parser.parse_args()))
