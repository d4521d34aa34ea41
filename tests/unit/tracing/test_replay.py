"""What reduced runs take over from the full run: the same space comes out, and what may differ is not taken over."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import meristem
from deep import ALL_NETS, DEEP
from meristem.tracing.replay import NOTHING, Replay

NETS = (
    "resnet",
    "resnet_padded",
    "densenet",
    "inverted_residual",
    "vit",
    "lstm_tied",
    "own_masks",
    "deep_bottleneck",
    "unet",
)


def text_of(space: meristem.Space) -> list[str]:
    """What a space holds, with the units of every position."""
    axes = [site.axis for site in space.sites] + [axis for term in space.terms for axis in term.axes]
    units = [(str(axis), part.group, part.units.tolist()) for axis in axes for part in axis.parts]
    return [str(each) for each in (space, space.sites, space.slots, space.attributes, space.pinned, space.notes, units)]


@pytest.mark.parametrize("name", NETS)
def test_the_space_is_the_one_of_runs_that_take_nothing_over(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    layer, operation = Replay._taken_over, Replay.operation

    def counted_layer(self: Replay, *args: Any) -> Any:
        taken.append("layer")
        return layer(self, *args)

    def counted_operation(self: Replay, *args: Any) -> Any:
        outs = operation(self, *args)
        if outs is not NOTHING:
            taken.append("operation")
        return outs

    monkeypatch.setattr(Replay, "_taken_over", counted_layer)
    monkeypatch.setattr(Replay, "operation", counted_operation)
    with_replay = text_of(meristem.trace(*ALL_NETS[name].build(), depth=name in DEEP))
    assert taken
    monkeypatch.setattr(Replay, "operation", lambda *_: NOTHING)
    monkeypatch.setattr(Replay, "_may_take_over", lambda *_: False)
    monkeypatch.setattr(Replay, "_recognise", lambda *_: None)
    assert text_of(meristem.trace(*ALL_NETS[name].build(), depth=name in DEEP)) == with_replay


class ChangesItsLayer(nn.Module):
    """What a layer does depends on how wide its input is."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.first, self.last = what, nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 1)
        self.middle: Any = nn.MaxPool2d(3, 1, 1) if what == "kernel" else nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if h.shape[1] < 8:
            if self.what == "kernel":
                self.middle.kernel_size, self.middle.padding = 1, 0
            elif self.what == "hook":
                self.middle.register_forward_hook(lambda module, args, out: out * 2)
            else:
                self.middle.forward = torch.tanh
        return self.last(self.middle(h)).mean((2, 3))


@pytest.mark.parametrize("what", ["kernel", "hook", "function"])
def test_a_layer_that_is_changed_at_another_width_is_run(what: str) -> None:
    """Nothing is taken over from the full run, where the layer was another one."""
    space = meristem.trace(ChangesItsLayer(what), torch.randn(2, 3, 6, 6))
    assert not space.groups, space
    assert "first" in str(space.pinned)


class ReplacesItsWeight(nn.Module):
    """Its weight has another size than that of the model's tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if h.shape[1] < 8:
            self.last.weight.data = self.last.weight.data[:1]
        return self.last(h)


def test_a_weight_of_another_size_is_not_taken_for_the_models() -> None:
    assert not meristem.trace(ReplacesItsWeight(), torch.randn(4, 3)).groups


def test_the_collector_runs_again_after_a_trace() -> None:
    import gc

    assert gc.isenabled()
    meristem.trace(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), torch.randn(2, 3))
    assert gc.isenabled()
