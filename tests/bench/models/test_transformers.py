"""GPT and ViT: heads, dimensions of all heads of a layer, inner widths, the stream and blocks can go.

What is left is what a mask would give.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from helpers import RandomGates, assert_is_masked_reference, go, half
from meristem import Live, Space, count_params, trace
from meristem_bench.models import gpt_small, gpt_tiny, vit_small, vit_tiny
from meristem_bench.models.gpt import GPT
from meristem_bench.models.transformer import Attention
from meristem_bench.models.vit import ViT


@pytest.fixture(autouse=True)
def _same_weights_every_time() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def gpt() -> nn.Module:
    return GPT(11, context=6, channels=12, heads=3, blocks=3)


def vit() -> nn.Module:
    return ViT(5, size=8, patch=4, channels=12, heads=3, blocks=3)


def tokens(count: int = 2) -> Tensor:
    return torch.randint(0, 11, (count, 6), generator=torch.Generator().manual_seed(1))


def images(count: int = 2) -> Tensor:
    return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(1))


TINY: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor], str]] = {
    "gpt": (gpt, tokens, "tokens"),
    "vit": (vit, images, "patches"),
}


@pytest.fixture(params=TINY)
def tiny(request: pytest.FixtureRequest) -> tuple[nn.Module, Tensor, Space, str]:
    """A small network, inputs, its space and the name of the group of the stream."""
    make, inputs, stream = TINY[request.param]
    model = make()
    return model, inputs(), trace(model, inputs(), strict=True, depth=True), stream


@pytest.mark.parametrize(
    ("make", "params"), [(gpt_small, 2_817_024), (gpt_tiny, 732_672), (vit_small, 1_522_234), (vit_tiny, 678_442)]
)
def test_sizes(make: Callable[[], nn.Module], params: int) -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in make().parameters()) == params


def test_heads_inner_widths_the_stream_and_blocks_are_free(tiny: tuple[nn.Module, Tensor, Space, str]) -> None:
    model, _, space, stream = tiny
    assert [pinned.name for pinned in space.pinned] == ["head"]
    parts = ("attention.qkv:heads", "attention.qkv", "up")
    per_block = [f"blocks.{block}.{part}" for block in range(3) for part in parts]
    assert set(space.groups) == {stream, *per_block, "blocks.1:block", "blocks.2:block"}
    assert [space.groups[name].units for name in (stream, *per_block[:3])] == [12, 3, 4, 48]
    assert space.free_params_frac > 0.99
    assert count_params(space) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", TINY)
def test_half_as_wide_is_the_masked_reference(name: str) -> None:
    make, inputs, _ = TINY[name]
    model, x = make().double(), inputs()
    x = x.double() if x.is_floating_point() else x
    space = trace(model, x, strict=True)
    full, live = copy.deepcopy(model), Live(model, space)
    go(live, half(space))
    assert_is_masked_reference(live, full, (x,), RandomGates(space))


def test_without_its_blocks_it_still_runs(tiny: tuple[nn.Module, Tensor, Space, str]) -> None:
    model, inputs, space, _ = tiny
    whole = model(inputs)
    live = Live(model, space)
    go(live, {"blocks.1:block": [], "blocks.2:block": []})
    assert model(inputs).shape == whole.shape
    assert sum(p.numel() for p in model.parameters()) == count_params(space, live.widths)


def test_no_byte_is_told_from_those_that_follow() -> None:
    model, text = gpt().eval(), tokens()
    changed = text.clone()
    changed[:, 4:] = 0
    scores, others = model(text), model(changed)
    torch.testing.assert_close(scores[:, :4], others[:, :4])
    assert not torch.equal(scores[:, 4:], others[:, 4:])
    torch.testing.assert_close(model(text[:, :3]), scores[:, :3])


def test_all_patches_see_each_other() -> None:
    attention = Attention(12, 3, causal=False)
    x = torch.randn(1, 4, 12, requires_grad=True)
    (gradient,) = torch.autograd.grad(attention(x)[0, 0].sum(), x)
    assert gradient.abs().sum(2).gt(0).all()


def test_what_adds_to_the_stream_starts_small_and_blocks_are_not_alike() -> None:
    model = GPT(channels=64, heads=4, blocks=2)
    spread = {name: float(p.detach().std()) for name, p in model.named_parameters() if p.dim() > 1}
    for name, value in spread.items():
        assert value == pytest.approx(0.01 if name.endswith(("proj.weight", "down.weight")) else 0.02, rel=0.1), name
    assert not torch.equal(model.blocks[0].up.weight, model.blocks[1].up.weight)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GPT(channels=10, heads=3), "10 channels cannot be shared evenly by 3 heads"),
        (lambda: ViT(size=10, patch=4), "images of 10 pixels cannot be cut into patches of 4"),
        (lambda: vit()(torch.zeros(1, 3, 8, 12)), "has positions for images of 8x8 pixels, got 8x12"),
    ],
)
def test_impossible_numbers_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
