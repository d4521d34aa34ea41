"""Networks that are nobody's benchmark, as users write them, for a look at the default beside the uniform network.

    PYTHONPATH=benchmarks meristem sweep other_settings:fashion_cnn --data DIR --arms default,uniform --seeds 3

DIR holds Fashion-MNIST (`meristem data fashion-mnist DIR`), or CIFAR-10 for those named after it. All runs have more
than 4 000 steps.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from meristem.control.budget import Budget
from meristem_bench.data.arrays import Arrays
from meristem_bench.data.idx import idx_images
from meristem_bench.models.mobilenet import MobileNetV1
from meristem_bench.recipes import cifar
from meristem_bench.runs import DataConfig, GrowthConfig, OptimizerConfig, Run
from meristem_bench.runs.lr_schedule import Cosine
from meristem_bench.runs.optimizer_kind import AdamW
from meristem_bench.runs.task import Classification

_SGD = OptimizerConfig(lr=0.05, schedule=Cosine(), weight_decay=5e-4)
_ADAMW = OptimizerConfig(lr=2e-3, schedule=Cosine(), kind=AdamW(), momentum=0.0, weight_decay=0.01)


def fashion_cnn() -> Run:
    """Two convolutions and two linear layers without norms; most parameters are in the first linear layer."""
    return _fashion("fashion-cnn", _cnn, _SGD, Budget(params="20%"))


def fashion_mlp() -> Run:
    """Three hidden layers of 256 units, dropout, AdamW."""
    return _fashion("fashion-mlp", _mlp, _ADAMW, Budget(params="10%"))


def fashion_dense_net() -> Run:
    """Every layer reads all layers before it (concatenation), group norms, AdamW."""
    return _fashion("fashion-dense-net", _Concatenating, _ADAMW, Budget(params="30%"))


def cifar10_mobilenet() -> Run:
    """A quarter-width MobileNet: depthwise convolutions, thirteen blocks."""
    return _cifar("cifar10-mobilenet", lambda: MobileNetV1(0.25, classes=10), Budget(params="25%"))


def cifar10_wide_then_narrow() -> Run:
    """A plain network whose first layers are wide and whose last are narrow, under a cap on macs."""
    return _cifar("cifar10-wide-then-narrow", _wide_then_narrow, Budget(macs="30%"))


def cifar10_bottlenecks() -> Run:
    """Residual bottlenecks under caps on both."""
    return _cifar("cifar10-bottlenecks", _Bottlenecks, Budget(params="30%", macs="40%"))


# --- the networks ---


def _cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 49, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


def _mlp() -> nn.Module:
    hidden = [layer for _ in range(2) for layer in (nn.Linear(256, 256), nn.ReLU(), nn.Dropout(0.1))]
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Dropout(0.1), *hidden, nn.Linear(256, 10))


class _Concatenating(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, stride=2, padding=1)
        self.layers = nn.ModuleList(_normed(16 * (1 + i), 16) for i in range(5))
        self.head = nn.Linear(96, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        out: Tensor = self.head(x.mean((2, 3)))
        return out


def _normed(before: int, after: int) -> nn.Module:
    return nn.Sequential(nn.GroupNorm(1, before), nn.GELU(), nn.Conv2d(before, after, 3, padding=1))


def _wide_then_narrow() -> nn.Module:
    layers: list[nn.Module] = []
    before = 3
    for width, stride in ((64, 1), (64, 2), (48, 1), (48, 2), (32, 1), (32, 1)):
        layers += [nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.SiLU()]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


class _Bottlenecks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64))
        self.blocks = nn.ModuleList(_bottleneck() for _ in range(4))
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        out: Tensor = self.head(x.relu().mean((2, 3)))
        return out


def _bottleneck() -> nn.Module:
    return nn.Sequential(
        *(nn.ReLU(), nn.Conv2d(64, 24, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU()),
        *(nn.Conv2d(24, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU()),
        *(nn.Conv2d(24, 64, 1, bias=False), nn.BatchNorm2d(64)),
    )


# --- the runs ---


def _fashion(name: str, model: object, optimizer: OptimizerConfig, budget: Budget) -> Run:
    return Run(
        name=name,
        about=name.replace("-", " "),
        model=model,  # type: ignore[arg-type]
        load=_load_fashion,
        task=Classification(),
        epochs=10,
        batch=128,
        optimizer=optimizer,
        growth=GrowthConfig(budget),
        data=DataConfig(),
    )


def _load_fashion(run: Run) -> Arrays:
    if run.data.data_dir is None:
        raise ValueError("give the folder that holds Fashion-MNIST: --data DIR")
    return Arrays(idx_images(run.data.data_dir, held_out=0))


def _cifar(name: str, model: object, budget: Budget) -> Run:
    run = cifar.resnet20_cifar10()
    return run.replace(
        name=name,
        about=name.replace("-", " "),
        model=model,
        epochs=12,
        rate=Cosine(),
        size=16,
        held_out=0,
        budget=budget,
    )
