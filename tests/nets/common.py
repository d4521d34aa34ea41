"""Small parts shared by the nets of the zoo."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def seq(**parts: nn.Module) -> nn.Sequential:
    """A Sequential whose parts have names."""
    net = nn.Sequential()
    for name, part in parts.items():
        net.add_module(name, part)
    return net


def conv_bn(i: int, o: int, k: int = 3, stride: int = 1, groups: int = 1, act: bool = True) -> nn.Sequential:
    conv = nn.Conv2d(i, o, k, stride, k // 2, groups=groups, bias=False)
    return seq(conv=conv, bn=nn.BatchNorm2d(o), **({"act": nn.ReLU()} if act else {}))


def classifier(width: int, *body: nn.Module) -> nn.Sequential:
    return seq(body=nn.Sequential(*body), pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(), head=nn.Linear(width, 5))


def mlp(i: int, hidden: int, o: int) -> nn.Sequential:
    return seq(up=nn.Linear(i, hidden), act=nn.GELU(), down=nn.Linear(hidden, o))


class Residual(nn.Module):
    """act(shortcut(x) + body(x)); the shortcut is the identity unless given."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None, act: nn.Module | None = None):
        super().__init__()
        self.body = body
        self.shortcut = shortcut or nn.Identity()
        self.act = act or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.shortcut(x) + self.body(x))


class Concat(nn.Module):
    """Parallel branches, concatenated on channels; with `keep`, behind the input itself."""

    def __init__(self, *branches: nn.Module, keep: bool = False):
        super().__init__()
        self.branches = nn.ModuleList(branches)
        self.keep = keep

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x] * self.keep + [branch(x) for branch in self.branches], 1)
