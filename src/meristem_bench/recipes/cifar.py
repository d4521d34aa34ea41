"""Runs on CIFAR-10 with the settings of the paper, and short ones of the same kind for two cores."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from meristem.control.budget import Budget
from meristem_bench.data.arrays import Arrays
from meristem_bench.data.augment import flipped, shifted
from meristem_bench.data.cifar import cifar10
from meristem_bench.models.resnet_cifar import resnet20, resnet20_own_masks
from meristem_bench.models.vgg_cifar import vgg16
from meristem_bench.models.wide_resnet import wrn28_10
from meristem_bench.runs import DataConfig, GrowthConfig, OptimizerConfig, Run
from meristem_bench.runs.lr_schedule import Cosine, Steps
from meristem_bench.runs.task import Classification

_PIXELS = 32


def vgg16_cifar10() -> Run:
    about = "VGG-16 with batch norm on CIFAR-10, 160 epochs."
    return resnet20_cifar10().replace(
        name="vgg16-cifar10", about=about, model=vgg16, budget=Budget(params="5%", macs="13.55%")
    )


def resnet20_cifar10() -> Run:
    return Run(
        name="resnet20-cifar10",
        about="ResNet-20 on CIFAR-10, 160 epochs.",
        model=resnet20,
        load=load,
        task=Classification(),
        epochs=160,
        batch=128,
        optimizer=OptimizerConfig(lr=0.1, schedule=Steps(10, (0.5, 0.75)), weight_decay=1e-4),
        growth=GrowthConfig(Budget(params="36%", macs="50.2%")),
        data=DataConfig(held_out=5000),
    )


def resnet20_own_masks_cifar10() -> Run:
    about = "ResNet-20 whose convolutions share no channels in the residual stream, on CIFAR-10, 160 epochs."
    run = resnet20_cifar10().replace(name="resnet20-own-masks-cifar10", about=about, model=resnet20_own_masks)
    return run.replace(pin="*lift")  # the stream keeps its width


def wrn28_10_cifar10() -> Run:
    return resnet20_cifar10().replace(
        name="wrn28-10-cifar10",
        about="WideResNet-28-10 on CIFAR-10, 200 epochs.",
        model=wrn28_10,
        epochs=200,
        rate=Steps(5, (0.3, 0.6, 0.8)),
        weight_decay=5e-4,
        budget=Budget(params="9.3%", macs="28.25%"),
    )


# --- short ones: the same network and budget, fewer and smaller images, fewer epochs ---


def vgg16_cifar10_short() -> Run:
    about = "The same in minutes on two cores: 4 000 images, 12 epochs."
    return _short(vgg16_cifar10(), about).replace(samples=4000, batch=64, lr=0.05)


def resnet20_cifar10_short() -> Run:
    about = "The same in minutes on two cores: 16 000 images of 16x16 pixels, 12 epochs."
    return _short(resnet20_cifar10(), about).replace(samples=16_000, size=16)


def resnet20_own_masks_cifar10_short() -> Run:
    about = "The same in minutes on two cores: 16 000 images of 16x16 pixels, 12 epochs."
    return _short(resnet20_own_masks_cifar10(), about).replace(samples=16_000, size=16)


def wrn28_10_cifar10_short() -> Run:
    about = "The same in minutes on two cores: 2 000 images of 16x16 pixels, 12 epochs."
    return _short(wrn28_10_cifar10(), about).replace(samples=2000, size=16, batch=64)


def _short(run: Run, about: str) -> Run:
    return run.replace(name=f"{run.name}-short", about=about, epochs=12, rate=Cosine())


# --- data ---


def load(run: Run) -> Arrays:
    """Shifted by up to an eighth of the size and mirrored half the time; smaller images are means of pixels."""
    config = run.data
    if config.data_dir is None:
        raise ValueError("give the folder that holds CIFAR-10: --data DIR; `meristem data cifar10 DIR` puts it there")
    size = config.size or _PIXELS
    if _PIXELS % size:
        raise ValueError(f"CIFAR-10 has images of {_PIXELS} pixels; size must divide that, got {size}")
    splits = cifar10(config.data_dir, config.held_out)
    images, labels = splits["train"]
    if config.samples > len(labels):
        raise ValueError(f"there are {len(labels)} training images that are not held out, not samples={config.samples}")
    splits["train"] = (images[: config.samples or None], labels[: config.samples or None])
    if size != _PIXELS:
        splits = {name: (F.avg_pool2d(images, _PIXELS // size), labels) for name, (images, labels) in splits.items()}
    return Arrays(splits, augment=partial(_augmented, pixels=size // 8))


def _augmented(images: Tensor, generator: torch.Generator, pixels: int) -> Tensor:
    return flipped(shifted(images, pixels, generator), generator)
