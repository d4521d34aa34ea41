"""A loop of your own with accelerate: bf16, accumulated and clipped gradients, and a network that grows to 40 %.

The three lines that meristem needs are marked. Run it again with ``--resume``, also after it was killed, and it goes on
from its last checkpoint.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from meristem.integrations.accelerate import prepare_grower  # 1
from meristem_bench.data.digits import digits
from meristem_bench.models.resnet_cifar import ResNetCifar


def main(epochs: int, depth: int, width: int, folder: Path, resume: bool = False) -> torch.nn.Module:
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=2)
    model = ResNetCifar(depth, classes=10, channels=1, width=width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    loader = DataLoader(TensorDataset(*digits()["train"]), 32, shuffle=True)
    images, labels = digits()["test"]
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    grower = prepare_grower(accelerator, model, optimizer, images[:1], budget="40%", epochs=epochs)  # 2
    if resume:
        accelerator.load_state(str(folder))
    while not grower.finished:
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(inputs), targets)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        scheduler.step()
        record = grower.step(loss=loss)  # 3
        accelerator.print(f"epoch {record['epoch']}: loss {record['metrics']['loss']:.3f}")
        accelerator.save_state(str(folder))
    small = accelerator.unwrap_model(grower.export(), keep_fp32_wrapper=False).eval()
    with torch.no_grad():
        right = (small(images).argmax(1) == labels).float().mean()
    print(f"{grower}\naccuracy {right:.1%}")
    return small


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--depth", type=int, default=14)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--folder", type=Path, default=Path("runs/accelerate"))
    parser.add_argument("--resume", action="store_true")
    main(**vars(parser.parse_args()))
