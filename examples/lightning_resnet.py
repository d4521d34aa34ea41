"""A ResNet on handwritten digits, grown to 40 % of its parameters by Lightning's Trainer.

The three lines that meristem needs are marked. Run it again with ``--resume`` and the path of a checkpoint, also of a
run that was killed, and it goes on where that one was.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from meristem.integrations.lightning import GrowerCallback  # 1
from meristem_bench.data.digits import digits
from meristem_bench.models.resnet_cifar import ResNetCifar


class Digits(LightningModule):
    def __init__(self, depth: int = 14, width: int = 16) -> None:
        super().__init__()
        self.model = ResNetCifar(depth, classes=10, channels=1, width=width)

    def forward(self, images):
        return self.model(images)

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = F.cross_entropy(self(images), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        self.log("accuracy", (self(images).argmax(1) == labels).float().mean(), prog_bar=True)

    test_step = validation_step

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.max_epochs)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


def main(epochs: int, depth: int, width: int, folder: Path, resume: Path | None = None) -> torch.nn.Module:
    torch.manual_seed(0)
    loaders = {name: DataLoader(TensorDataset(*split), 64) for name, split in digits().items()}
    images, _ = digits()["train"]
    module = Digits(depth, width)
    growing = GrowerCallback(budget="40%", example_inputs=images[:1], module="model")  # 2
    trainer = Trainer(
        max_epochs=epochs,
        gradient_clip_val=1.0,
        callbacks=[growing, ModelCheckpoint(folder, save_last=True)],  # 3
        accelerator="cpu",
        logger=False,
    )
    trainer.fit(module, loaders["train"], loaders["validation"], ckpt_path=resume)
    trainer.test(module, loaders["test"])
    print(growing.grower)
    return growing.grower.export()  # a plain ResNetCifar


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--depth", type=int, default=14)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--folder", type=Path, default=Path("runs/lightning"))
    parser.add_argument("--resume", type=Path)
    main(**vars(parser.parse_args()))
