"""Width and depth together, from the four starts of the paper: filters and whole blocks come and go.

The paper does not say what room there was for blocks, nor the budgets: the room here is what AutoGrow found and more,
the budgets are ours. So is the schedule: the plan does not rise above the budget, because what goes again when it comes
down are whole blocks. What it fine-tunes for 40 epochs on CIFAR-10 and for 20 on ImageNet is fine-tuned here, too; the
short runs go without.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from meristem.control.budget import Budget
from meristem_bench.models.depth_starts import basic3_resnet, bottleneck4_resnet, plain3_net, plain4_net
from meristem_bench.recipes.cifar import resnet20_cifar10, resnet20_cifar10_short
from meristem_bench.recipes.imagenet import resnet50_imagenet, resnet50_imagenet_short
from meristem_bench.runs import Run


def basic3_resnet_cifar10() -> Run:
    about = "Width and depth of a residual network of three stages, up to 42 blocks each, on CIFAR-10, 160 + 40 epochs."
    room = partial(basic3_resnet, (42, 42, 42))
    return _deep(resnet20_cifar10().replace(fine_tune=40), "basic3-resnet-cifar10", about, room, "40%")


def plain3_net_cifar10() -> Run:
    about = "The same without shortcuts, up to 23 blocks a stage."
    room = partial(plain3_net, (23, 23, 23))
    return _deep(resnet20_cifar10().replace(fine_tune=40), "plain3-net-cifar10", about, room, "40%")


def bottleneck4_resnet_imagenet() -> Run:
    about = "Width and depth of a residual network of four stages, up to 9 blocks each, on ImageNet, 90 + 20 epochs."
    room = partial(bottleneck4_resnet, (9, 9, 9, 9))
    return _deep(resnet50_imagenet().replace(fine_tune=20), "bottleneck4-resnet-imagenet", about, room, "50%")


def plain4_net_imagenet() -> Run:
    about = "The same without shortcuts, up to 6 blocks a stage."
    room = partial(plain4_net, (6, 6, 6, 6))
    return _deep(resnet50_imagenet().replace(fine_tune=20), "plain4-net-imagenet", about, room, "50%")


def bottleneck4_resnet_imagenet_nas() -> Run:
    """What is grown here is meant to be trained anew: `meristem sweep RECIPE --arms grown,direct` does both."""
    about = "An architecture of at most 7 million parameters, to be trained from scratch by the arm direct of a sweep."
    return bottleneck4_resnet_imagenet().replace(
        name="bottleneck4-resnet-imagenet-nas",
        about=about,
        fine_tune=0,
        method="paper-nas",
        budget=Budget(params=7_000_000),
    )


def basic3_resnet_cifar10_short() -> Run:
    about = "The same in minutes on two cores: up to 6 blocks a stage, 16 000 images of 16x16 pixels, 12 epochs."
    room = partial(basic3_resnet, (6, 6, 6))
    return _deep(resnet20_cifar10_short(), "basic3-resnet-cifar10-short", about, room, "40%")


def plain3_net_cifar10_short() -> Run:
    about = "The same in minutes on two cores: up to 6 blocks a stage, 16 000 images of 16x16 pixels, 12 epochs."
    room = partial(plain3_net, (6, 6, 6))
    return _deep(resnet20_cifar10_short(), "plain3-net-cifar10-short", about, room, "40%")


def bottleneck4_resnet_imagenet_short() -> Run:
    about = "The same in minutes on two cores: up to 3 blocks a stage, 10 classes at 64 pixels, 12 epochs."
    room = partial(bottleneck4_resnet, (3, 3, 3, 3))
    return _deep(resnet50_imagenet_short(), "bottleneck4-resnet-imagenet-short", about, room, "50%")


def plain4_net_imagenet_short() -> Run:
    about = "The same in minutes on two cores: up to 3 blocks a stage, 10 classes at 64 pixels, 12 epochs."
    room = partial(plain4_net, (3, 3, 3, 3))
    return _deep(resnet50_imagenet_short(), "plain4-net-imagenet-short", about, room, "50%")


def bottleneck4_resnet_imagenet_nas_short() -> Run:
    """The share of the full network is that of the long run."""
    about = "The same in minutes on two cores: up to 3 blocks a stage, 10 classes at 64 pixels, 12 epochs."
    return bottleneck4_resnet_imagenet_short().replace(
        name="bottleneck4-resnet-imagenet-nas-short",
        about=about,
        method="paper-nas",
        budget=Budget(params="12.2%"),
    )


def _deep(run: Run, name: str, about: str, model: Callable[..., nn.Module], share: str) -> Run:
    return run.replace(
        name=name, about=about, model=model, depth=True, budget=Budget(params=share), method="default:peak=1"
    )
