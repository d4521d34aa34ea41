"""Runs on ImageNet, or any folder of class folders, with the settings of the paper; short ones for a sample of it."""

from __future__ import annotations

from torch import Tensor

from meristem.control.budget import Budget
from meristem_bench.data.class_folders import class_folders
from meristem_bench.data.classification_views import CentreView, TrainView
from meristem_bench.data.sample_subset import evenly_spaced
from meristem_bench.data.streamed import Streamed
from meristem_bench.models.mobilenet import mobilenet_v1, mobilenet_v1_half
from meristem_bench.models.resnet_imagenet import resnet50
from meristem_bench.runs import DataConfig, GrowthConfig, OptimizerConfig, Run
from meristem_bench.runs.lr_schedule import Cosine, Steps
from meristem_bench.runs.task import Classification

_PIXELS = 224


def resnet50_imagenet() -> Run:
    return Run(
        name="resnet50-imagenet",
        about="ResNet-50 on ImageNet, or any folder of class folders, at 224 pixels, 90 epochs.",
        model=resnet50,
        load=load,
        task=Classification(top=(1, 5)),
        epochs=90,
        batch=256,
        optimizer=OptimizerConfig(lr=0.1, schedule=Steps(10, (1 / 3, 2 / 3)), nesterov=True, weight_decay=1e-4),
        growth=GrowthConfig(Budget(params="61.2%", macs="50.3%")),
        data=DataConfig(classes=1000, held_out=10_000, size=_PIXELS, workers=8),
    )


def mobilenet_v1_224_imagenet() -> Run:
    """Compared with the network of three quarters of the width: 83 % of its macs."""
    return resnet50_imagenet().replace(
        name="mobilenet-v1-224-imagenet",
        about="MobileNetV1 on ImageNet at 224 pixels, 90 epochs; budget: 83 % of the macs at 3/4 width.",
        model=mobilenet_v1,
        rate=Cosine(),
        weight_decay=4e-5,
        decays=_not_depthwise,
        budget=Budget(macs=270_082_000),
    )


def mobilenet_v1_128_imagenet() -> Run:
    """Compared with the network of a quarter of the width: 73 % of its macs."""
    return mobilenet_v1_224_imagenet().replace(
        name="mobilenet-v1-128-imagenet",
        about="MobileNetV1 of half width on ImageNet at 128 pixels, 90 epochs; budget: 73 % of the macs at 1/4 width.",
        model=mobilenet_v1_half,
        size=128,
        budget=Budget(macs=9_906_000),
    )


# --- short ones: the same network on a sample of ten classes, smaller images, fewer epochs ---


def resnet50_imagenet_short() -> Run:
    return _short(resnet50_imagenet(), "10 classes at 64 pixels, 12 epochs").replace(size=64)


def mobilenet_v1_224_imagenet_short() -> Run:
    run = _short(mobilenet_v1_224_imagenet(), "10 classes at 112 pixels, 12 epochs")
    return run.replace(size=112, budget=Budget(macs="47%"))


def mobilenet_v1_128_imagenet_short() -> Run:
    run = _short(mobilenet_v1_128_imagenet(), "10 classes at 64 pixels, 12 epochs")
    return run.replace(size=64, budget=Budget(macs="20%"))


def _short(run: Run, what: str) -> Run:
    return run.replace(
        name=f"{run.name}-short",
        about=f"The same in minutes on two cores: {what}.",
        classes=10,
        epochs=12,
        batch=32,
        lr=0.05,
        rate=Cosine(),
        held_out=100,
        workers=0,
    )


# --- data ---


def load(run: Run) -> Streamed:
    """Crops of random size and shape, mirrored, with the colours and the lighting of the ResNet reference."""
    config = run.data
    if config.data_dir is None:
        raise ValueError(
            "give the folder that holds train/CLASS/*.jpeg and val/CLASS/*.jpeg: --data DIR; `meristem data imagenet "
            "DIR` says how to get ImageNet"
        )
    size = config.size or _PIXELS
    splits = class_folders(config.data_dir, TrainView(size), CentreView(size), config.held_out, config.classes or None)
    train = evenly_spaced(splits["train"], config.samples)
    return Streamed({**splits, "train": train}, config.workers, pin=run.machine.on_cuda)


def _not_depthwise(name: str, parameter: Tensor) -> bool:
    """Depthwise filters have few weights and are not decayed (Howard et al. 2017)."""
    return not (parameter.dim() == 4 and parameter.shape[1] == 1)
