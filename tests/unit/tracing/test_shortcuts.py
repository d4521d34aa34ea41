"""Blocks whose result meets what went into them outside of them can never be absent; others can."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import meristem
from nets.common import Residual, mlp

X = torch.ones(2, 6)
Call = Callable[["Chain", nn.Module, Tensor], Tensor]


class Chain(nn.Module):
    """A stem, three blocks in a loop, a head; ``call`` says what becomes of each block's result."""

    def __init__(self, make: Callable[[], nn.Module], call: Call) -> None:
        super().__init__()
        self.stem, self.norm, self.head = nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 2)
        self.scale, self.blocks, self.call = nn.Parameter(torch.ones(6)), nn.ModuleList(make() for _ in range(3)), call

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = self.call(self, block, x)
        return self.head(x)


def body() -> nn.Module:
    return mlp(6, 8, 6)


def in_place(net: Chain, block: nn.Module, x: Tensor) -> Tensor:
    made = block(x)
    made += x
    return made


def as_tokens(net: Chain, block: nn.Module, x: Tensor) -> Tensor:
    """The pixels of an image are tokens for the block, and pixels again."""
    image = x.unsqueeze(-1).transpose(1, 2)
    return image.squeeze(1) + block(image.flatten(1)).view(len(x), 1, 6).squeeze(1)


MEETINGS: dict[str, Call] = {
    "sum": lambda net, block, x: x + block(x),
    "sum in place": in_place,
    "scaled and dropped": lambda net, block, x: F.dropout(block(x) * 0.5, 0.1, net.training) + x,
    "difference": lambda net, block, x: x - block(x),
    "difference the other way": lambda net, block, x: block(x) - x,
    "product": lambda net, block, x: x * block(x),
    "gate": lambda net, block, x: x * torch.sigmoid(block(x)),
    "quotient": lambda net, block, x: block(x) / x,
    "lerp": lambda net, block, x: torch.lerp(x, block(x), 0.3),
    "addcmul": lambda net, block, x: torch.addcmul(x, block(x), net.scale),
    "norm before": lambda net, block, x: x + block(net.norm(x)),
    "norm after": lambda net, block, x: x + net.norm(block(x)),
    "activation before": lambda net, block, x: x + block(F.leaky_relu(x)),
    "another shape": as_tokens,
}


@pytest.mark.parametrize("name", MEETINGS)
def test_a_meeting_outside_of_the_block(name: str) -> None:
    """An absent block passes on what goes in; where that is met once more, it would be counted twice, or cancelled."""
    model = Chain(body, MEETINGS[name])
    assert not meristem.trace(model, X, depth=True).stages
    space = meristem.trace(model, X, depth="blocks.1")
    assert not space.stages
    assert any("blocks.1" in note and "meets what goes in outside of it" in note for note in space.notes)


class Excited(nn.Module):
    """All units scaled by what a small network makes of them: its result is the input, but for a factor."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = body()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.inner(x).sigmoid()


def residual() -> nn.Module:
    return Residual(body())


FREE: dict[str, tuple[Callable[[], nn.Module], Call]] = {
    "the sum is inside": (residual, lambda net, block, x: block(x)),
    "a norm between": (residual, lambda net, block, x: net.norm(block(x))),
    # What is made of a result meets that result again. That is not what went in, though the block only scaled it.
    "swish by hand": (Excited, lambda net, block, x: (y := block(x)) * torch.sigmoid(y)),
    "another module's result": (residual, lambda net, block, x: block(x) + net.stem(x)),
}


@pytest.mark.parametrize("name", FREE)
def test_no_meeting(name: str) -> None:
    make, call = FREE[name]
    space = meristem.trace(Chain(make, call), X, depth=True)
    assert [block.path for block in space.blocks.values()] == ["blocks.1", "blocks.2"]


def test_a_shortcut_around_all_blocks() -> None:
    """The input of the first block is added after the last: none of the others passes it on."""

    class Around(Chain):
        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            y = x
            for block in self.blocks:
                y = block(y)
            return self.head(x + y)

    space = meristem.trace(Around(residual, lambda net, block, x: x), X, depth=True)
    assert [block.path for block in space.blocks.values()] == ["blocks.1", "blocks.2"]
