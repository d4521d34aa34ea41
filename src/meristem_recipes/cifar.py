"""Runs on CIFAR-10."""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.control.budget import Budget
from meristem.data.arrays import Arrays
from meristem.data.augment import flipped, shifted
from meristem.data.cifar import cifar10
from meristem.models.resnet_cifar import ResNetCifar
from meristem.run import Run
from meristem.task import Classification


def resnet20_cifar10() -> Run:
    return Run(
        name="resnet20-cifar10",
        about="A ResNet-20 on CIFAR-10, 20 epochs; needs --data DIR, where cifar-10-python.tar.gz was unpacked.",
        model=lambda: ResNetCifar(depth=20),
        load=_load,
        task=Classification(),
        epochs=20,
        batch=128,
        lr=0.1,
        weight_decay=1e-4,
        budget=Budget(params="36%"),
    )


def resnet20_cifar10_all() -> Run:
    """For final comparisons: nothing is decided on a validation set, so nothing needs to be held out."""
    about = "The same on all 50 000 training images, without a validation set: for final comparisons."
    return dataclasses.replace(
        resnet20_cifar10(), name="resnet20-cifar10-all", about=about, load=lambda data_dir: _load(data_dir, held_out=0)
    )


def resnet20_cifar10_short() -> Run:
    """For trying things out: a quarter of the macs an image, a third of the images, fewer epochs."""
    about = "The same for a few minutes on two cores: 16 000 images of 16x16 pixels, 12 epochs."
    return dataclasses.replace(
        resnet20_cifar10(), name="resnet20-cifar10-short", about=about, load=_load_short, epochs=12
    )


def _load_short(data_dir: str | None) -> Arrays:
    whole = _load(data_dir)
    halved = {name: (F.avg_pool2d(images, 2), labels) for name, (images, labels) in whole.splits.items()}
    images, labels = halved["train"]
    return Arrays({**halved, "train": (images[:16_000], labels[:16_000])}, augment=_augmented_short)


def _augmented_short(images: Tensor, generator: torch.Generator) -> Tensor:
    return flipped(shifted(images, 2, generator), generator)


def _load(data_dir: str | None, held_out: int = 5000) -> Arrays:
    if data_dir is None:
        raise ValueError("give the folder into which cifar-10-python.tar.gz was unpacked: --data DIR")
    return Arrays(cifar10(data_dir, held_out), augment=_augmented)


def _augmented(images: Tensor, generator: torch.Generator) -> Tensor:
    """A random crop of the image with four pixels of padding, mirrored half the time (He et al. 2016)."""
    return flipped(shifted(images, 4, generator), generator)
