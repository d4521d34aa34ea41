"""The networks of the bench: published sizes and costs, every width free, and resized to what a mask would give."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from helpers import RandomGates, assert_is_masked_reference, go, half
from meristem import Live, Space, count_macs, count_params, export, load, save, trace
from meristem_bench.models import resnet_cifar, resnet_imagenet
from meristem_bench.models.deeplab_v3 import DeepLabV3, deeplab_v3_resnet101
from meristem_bench.models.depth_starts import basic3_resnet, bottleneck4_resnet, plain3_net, plain4_net
from meristem_bench.models.mobilenet import MobileNetV1, mobilenet_v1, mobilenet_v1_half
from meristem_bench.models.resnet_cifar import ResNetCifar
from meristem_bench.models.resnet_imagenet import ResNetImageNet
from meristem_bench.models.vgg_cifar import VGGCifar, vgg16
from meristem_bench.models.wide_resnet import WideResNet, wrn28_10

Maker = Callable[[], nn.Module]


@pytest.fixture(autouse=True)
def _same_weights_every_time() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def on_meta(make: Maker) -> nn.Module:
    """A model without numbers: enough for counting, quick at any size."""
    with torch.device("meta"):
        return make()


def images(size: int, batch: int = 2, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Tensor:
    if device == "meta":
        return torch.empty(batch, 3, size, size, device="meta")
    return torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(5), dtype=dtype)


def macs(model: nn.Module, size: int) -> int:
    """What torch counts for one image."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(images(size, 1, "meta"))
    return counter.get_total_flops() // 2


# --- sizes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "params"),
    [
        (vgg16, 14_728_266),
        (lambda: VGGCifar(extra_layer=True), 14_990_922),
        (resnet_cifar.resnet20, 269_722),
        (resnet_cifar.resnet20_own_masks, 269_722),
        (resnet_cifar.resnet32, 464_154),
        (resnet_cifar.resnet44, 658_586),
        (resnet_cifar.resnet56, 853_018),
        (resnet_cifar.resnet110, 1_727_962),
        (wrn28_10, 36_479_194),
        (resnet_imagenet.resnet18, 11_689_512),
        (resnet_imagenet.resnet34, 21_797_672),
        (resnet_imagenet.resnet50, 25_557_032),
        (resnet_imagenet.resnet101, 44_549_160),
        (mobilenet_v1, 4_231_976),
        (lambda: MobileNetV1(0.75), 2_585_560),
        (mobilenet_v1_half, 1_331_592),
        (lambda: MobileNetV1(0.25), 470_072),
        (deeplab_v3_resnet101, 58_040_661),
    ],
)
def test_parameters_are_the_published_ones(make: Maker, params: int) -> None:
    assert sum(p.numel() for p in on_meta(make).parameters()) == params


@pytest.mark.parametrize(
    ("make", "size", "millions"),
    [
        (vgg16, 32, 313),
        (lambda: ResNetCifar(20), 32, 41),
        (wrn28_10, 32, 5243),
        (resnet_imagenet.resnet18, 224, 1814),
        (mobilenet_v1, 224, 569),
        (lambda: MobileNetV1(0.75), 224, 325),
        (mobilenet_v1_half, 128, 49),
        (lambda: MobileNetV1(0.25), 128, 14),
    ],
)
def test_macs_are_the_published_ones(make: Maker, size: int, millions: int) -> None:
    assert round(macs(on_meta(make), size) / 1e6) == millions


@pytest.mark.parametrize(
    ("make", "sizes", "classes"),
    [
        (lambda: vgg16(7), (32, 48), 7),
        (lambda: VGGCifar(100, extra_layer=True), (33,), 100),
        (lambda: ResNetCifar(8, 7), (8, 33), 7),
        (lambda: WideResNet(10, 1, 100), (8, 33), 100),
        (lambda: mobilenet_v1_half(7), (32, 65), 7),
        (lambda: plain3_net((1, 2, 3), 7), (8, 33), 7),
        (lambda: bottleneck4_resnet((1, 2, 1, 1), 7), (32, 65), 7),
        (lambda: plain4_net((1, 2, 1, 1), 7), (32, 65), 7),
    ],
)
def test_images_of_several_sizes(make: Maker, sizes: tuple[int, ...], classes: int) -> None:
    model = on_meta(make)
    for size in sizes:
        assert model(images(size, 2, "meta")).shape == (2, classes)


# --- every width is free ----------------------------------------------------------------------------------------


WHOLE: dict[str, tuple[Maker, int]] = {
    "vgg": (vgg16, 32),
    "wide_resnet": (wrn28_10, 32),
    "resnet_imagenet": (resnet_imagenet.resnet18, 64),
    "mobilenet": (mobilenet_v1, 64),
    "deeplab": (lambda: DeepLabV3(depth=18), 65),
}


@pytest.mark.parametrize("name", WHOLE)
def test_only_the_output_is_pinned(name: str) -> None:
    make, size = WHOLE[name]
    model = on_meta(make)
    space = trace(model, images(size), strict=True)
    assert_all_free(space)
    assert count_params(space) == sum(p.numel() for p in model.parameters())
    assert count_macs(space) == 2 * macs(model, size)  # two images


def test_dropout_is_no_obstacle() -> None:
    assert_all_free(trace(on_meta(lambda: WideResNet(10, 1, dropout=0.3)), images(8), strict=True))


def assert_all_free(space: Space) -> None:
    assert [pinned.name for pinned in space.pinned] == ["head"]
    assert not space.notes
    assert space.free_params_frac > 0.99


TINY: dict[str, tuple[Maker, int]] = {
    "vgg": (lambda: VGGCifar(3, extra_layer=True, width=4), 32),
    "resnet_cifar": (lambda: ResNetCifar(8, 3, width=4), 8),
    "wide_resnet": (lambda: WideResNet(10, 1, 3), 8),
    "resnet_basic": (lambda: ResNetImageNet(18, 3, 4, blocks=(1, 2, 1, 1)), 33),
    "resnet_bottleneck": (lambda: bottleneck4_resnet((2, 1, 1, 1), 3, 2), 33),
    "mobilenet": (lambda: MobileNetV1(1 / 16, 3), 33),
    "deeplab": (lambda: DeepLabV3(3, 18, 16, width=4, pyramid_width=6), 33),
    "plain3": (lambda: plain3_net((1, 2, 1), 3, 4), 8),
    "plain4": (lambda: plain4_net(classes=3, width=2), 33),
}


@pytest.fixture(params=TINY)
def tiny(request: pytest.FixtureRequest) -> tuple[nn.Module, int]:
    """A small network of each class in double precision, and the size of its images."""
    make, size = TINY[request.param]
    return make().double(), size


def test_half_as_wide_is_the_masked_reference(tiny: tuple[nn.Module, int]) -> None:
    model, size = tiny
    inputs = (images(size, 3, dtype=torch.float64),)
    space = trace(model, inputs, strict=True)
    assert_all_free(space)
    full, live = copy.deepcopy(model), Live(model, space)
    go(live, half(space))
    for training in (False, True):  # training moves the statistics that evaluation reads
        model.train(training)
        assert_is_masked_reference(live, full.train(training), inputs, RandomGates(space))
    assert model.eval()(images(size + 16, 1, dtype=torch.float64)).isfinite().all()


# --- what they are made of --------------------------------------------------------------------------------------


def test_weights_start_as_kaiming_draws_them(tiny: tuple[nn.Module, int]) -> None:
    """The spread of a weight is that of a ReLU layer with as many inputs, or outputs, as it has."""
    model, _ = tiny
    checked = 0
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 500:
            fans = [module.weight[0].numel(), module.weight.numel() // module.weight.shape[1]]
            spread = float(module.weight.detach().std())
            assert any(abs(spread / math.sqrt(2 / fan) - 1) < 0.15 for fan in fans), name
            checked += 1
    assert checked


def test_depthwise_weights_do_not_vanish() -> None:
    depthwise = [module for module in MobileNetV1(0.5).modules() if isinstance(module, nn.Conv2d) and module.groups > 1]
    assert len(depthwise) == 13
    assert all(abs(float(module.weight.detach().std()) / math.sqrt(2 / 9) - 1) < 0.2 for module in depthwise)


@pytest.mark.parametrize(
    ("stride", "dilations"),
    [(32, [[1], [1], [1], [1, 2, 4]]), (16, [[1], [1], [1], [2, 4, 8]]), (8, [[1], [1], [2], [4, 8, 16]])],
)
def test_dilation_replaces_stride(stride: int, dilations: list[list[int]]) -> None:
    stages, channels = resnet_imagenet.resnet_stages(50, 4, output_stride=stride, multi_grid=(1, 2, 4))
    per_block = [[block.body[3].dilation[0] for block in stage] for stage in stages]
    assert [sorted(set(stage)) for stage in per_block] == dilations
    assert per_block[3] == dilations[3]
    assert stages(torch.randn(1, 4, 32, 32)).shape == (1, channels, 128 // stride, 128 // stride)


@pytest.mark.parametrize("depth", [18, 50])
def test_segmentation_trains_by_twos_and_evaluates_alone(depth: int) -> None:
    model = DeepLabV3(5, depth, width=4, pyramid_width=8)
    out = model(images(49))
    assert out.shape == (2, 5, 49, 49)
    nn.functional.cross_entropy(out, torch.randint(0, 5, (2, 49, 49))).backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
    with torch.no_grad():
        for height, width in ((49, 49), (33, 65), (40, 24)):
            assert model.eval()(torch.randn(1, 3, height, width)).shape == (1, 5, height, width)


def test_a_classifier_lends_its_weights_to_segmentation() -> None:
    classifier, model = ResNetImageNet(50, 3, 4), DeepLabV3(3, 50, width=4, pyramid_width=8)
    weights = {name: tensor for name, tensor in classifier.state_dict().items() if not name.startswith("head.")}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected
    assert all(name.startswith(("pyramid.", "head.")) for name in missing)


def test_with_own_masks_every_convolution_has_a_group_of_its_own() -> None:
    model = on_meta(resnet_cifar.resnet20_own_masks)
    space = trace(model, images(32, 1, "meta"), pin=["*lift"])
    convolutions = [name for name, module in model.named_modules() if isinstance(module, nn.Conv2d)]
    assert [space.coupled(group)[0] for group in space.groups] == [[name] for name in convolutions]
    assert {pinned.units for pinned in space.pinned} == {10, 16, 32, 64}  # the classes and the stream of each stage
    lifts = count_macs(space) - macs(on_meta(resnet_cifar.resnet20), 32)
    assert lifts == 4 * 32**2 * 16**2 + 3 * 16**2 * 32**2 + 3 * 8**2 * 64**2 == 2_621_440


def test_lifts_are_not_trained_and_change_nothing_at_full_width() -> None:
    shared, own = ResNetCifar(8, width=4), ResNetCifar(8, width=4, own_masks=True)
    assert not [name for name, _ in own.named_parameters() if "lift" in name]
    assert len(list(own.parameters())) == len(list(shared.parameters()))
    with torch.no_grad():
        for mine, theirs in zip(own.parameters(), shared.parameters(), strict=True):
            mine.copy_(theirs)
        assert torch.equal(own.eval()(images(8)), shared.eval()(images(8)))


def test_a_writer_without_a_channel_leaves_it_to_the_others(tmp_path: Path) -> None:
    """The stream stays as it is where one writer adds nothing to it; so does the exported network, and a loaded one."""
    model = ResNetCifar(8, width=4, own_masks=True).eval()
    live = Live(model, trace(model, images(8), pin=["*lift"]))
    with torch.no_grad():
        stream = model.stages[0][0].lift(model.stages[0][0].bn2(torch.ones(1, 4, 2, 2)))
        go(live, {"stages.0.0.conv2": [1, 2]})
        narrow = model.stages[0][0].lift(model.stages[0][0].bn2(torch.ones(1, 2, 2, 2)))
        assert torch.equal(narrow[:, [1, 2]], stream[:, [1, 2]])
        assert not narrow[:, [0, 3]].any()
        assert model.stem[0].out_channels == 4
        save(live, tmp_path / "small")
        again = load(tmp_path / "small", ResNetCifar(8, width=4, own_masks=True)).eval()
        assert torch.equal(again(images(8)), export(live)(images(8)))


DEPTH_STARTS = {"basic3": basic3_resnet, "plain3": plain3_net, "bottleneck4": bottleneck4_resnet, "plain4": plain4_net}


@pytest.mark.parametrize("name", DEPTH_STARTS)
def test_a_depth_start_has_one_block_in_each_stage(name: str) -> None:
    assert [len(stage) for stage in on_meta(DEPTH_STARTS[name]).stages] == [1] * int(name[-1])


@pytest.mark.parametrize("name", DEPTH_STARTS)
def test_blocks_after_the_first_keep_the_shape(name: str) -> None:
    """So whole blocks can be taken out, and what is left is the start."""
    model = DEPTH_STARTS[name](blocks=[3] * int(name[-1]), classes=4, width=4).eval()
    x = model.stem(images(32))
    for stage in model.stages:
        shapes = [(x := block(x)).shape for block in stage]
        assert all(one == two for one, two in pairwise(shapes))
        del stage[1:]
    start = DEPTH_STARTS[name](classes=4, width=4).eval()
    start.load_state_dict(model.state_dict())
    assert torch.equal(model(images(32)), start(images(32)))


@pytest.mark.parametrize("name", DEPTH_STARTS)
def test_plain_blocks_have_no_way_around(name: str) -> None:
    """With the last norm at zero a residual block passes its input on, a plain one nothing."""
    model = DEPTH_STARTS[name](blocks=[2] * int(name[-1]), classes=4, width=4).eval()
    block = model.stages[0][1]
    last = [module for module in block.modules() if isinstance(module, nn.BatchNorm2d)][-1]
    nn.init.zeros_(last.weight)
    x = torch.rand(2, last.num_features, 8, 8)
    assert torch.equal(block(x), torch.zeros_like(x) if name.startswith("plain") else x)


# --- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ResNetCifar(21), r"depth must be 6n \+ 2 \(20, 32, 44, ...\), got 21"),
        (lambda: ResNetImageNet(20), "depth must be one of 18, 34, 50, 101, 152, got 20"),
        (lambda: WideResNet(27), r"depth must be 6n \+ 4 \(16, 22, 28, ...\), got 27"),
        (lambda: MobileNetV1(0.0), "width_multiplier must be above 0, got 0.0"),
        (lambda: DeepLabV3(output_stride=32), "output_stride must be 8 or 16, got 32"),
        (lambda: resnet_imagenet.resnet_stages(18, 4, output_stride=4), "output_stride must be 8, 16 or 32, got 4"),
        (lambda: basic3_resnet((1, 1)), r"blocks must be 3 numbers of at least 1, .* got \(1, 1\)"),
        (lambda: plain4_net((1, 0, 1, 1)), r"blocks must be 4 numbers of at least 1, .* got \(1, 0, 1, 1\)"),
    ],
)
def test_impossible_numbers_are_named(make: Maker, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        on_meta(make)
