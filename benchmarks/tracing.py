"""What a trace with its proof costs, beside Torch-Pruning's graph without proof: seconds of CPU, interleaved.

    python benchmarks/tracing.py                      # all models that the installed packages make
    python benchmarks/tracing.py resnet50 'timm *'    # some of them, by pattern
    python benchmarks/tracing.py --repeats 5 --room   # also the room for 600 blocks: a model of its own

Runs with what is installed: torch alone gives the networks of ``meristem_bench`` and of ``torch.nn``; torchvision,
timm, segmentation-models-pytorch and transformers add theirs, with random weights; torch-pruning adds the comparison.
First, a tiny model is traced by both, so that what torch does once in a process counts for no model; that time is
printed by itself. The columns hold the least of the repeats, which a busy machine disturbs least; the first trace of
every model stands beside it, because a user traces once.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import meristem
from meristem_bench.models.deeplab_v3 import deeplab_v3_resnet101
from meristem_bench.models.depth_starts import basic3_resnet
from meristem_bench.models.mobilenet import mobilenet_v1
from meristem_bench.models.resnet_cifar import resnet20
from meristem_bench.models.resnet_imagenet import resnet50
from meristem_bench.models.vgg_cifar import vgg16

Example = Any
Made = tuple[nn.Module, Example]

TIMM = (
    ("convnext_atto", 64),
    ("efficientnet_lite0", 64),
    ("mobilenetv3_small_050", 64),
    ("regnetx_002", 64),
    ("resnest14d", 64),
    ("vit_tiny_patch16_224", 224),
    ("mixer_s32_224", 224),
    ("pvt_v2_b0", 64),
    ("xcit_nano_12_p16_224", 224),
)
SEGMENTATION = ("Unet", "FPN", "PSPNet", "DeepLabV3Plus", "Linknet", "MAnet", "UPerNet")
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 99}
TRANSFORMERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Bert": ("BertModel", SMALL),
    "DistilBert": ("DistilBertModel", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "vocab_size": 99}),
    "Llama": ("LlamaForCausalLM", SMALL | {"num_key_value_heads": 2, "use_cache": False}),
    "GPTNeoX": ("GPTNeoXForCausalLM", SMALL | {"use_cache": False}),
    "T5": ("T5EncoderModel", {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "vocab_size": 99}),
}


def image(size: int, batch: int = 1) -> torch.Tensor:
    return torch.randn(batch, 3, size, size)


def models() -> dict[str, Callable[[], Made]]:
    """What makes each model and an example for it, by name."""
    encoder = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True)
    found: dict[str, Callable[[], Made]] = {
        "resnet50": lambda: (resnet50(), image(224)),
        "resnet20": lambda: (resnet20(), image(32)),
        "vgg16": lambda: (vgg16(), image(32)),
        "mobilenet_v1": lambda: (mobilenet_v1(), image(128)),
        "deeplab_v3_resnet101": lambda: (deeplab_v3_resnet101(), image(129)),
        "torch TransformerEncoder": lambda: (nn.TransformerEncoder(encoder, 3), torch.randn(2, 7, 32)),
    }
    for package in (of_torchvision, of_timm, of_segmentation_models, of_transformers):
        try:
            found |= dict(package())
        except ImportError as error:
            print(f"# without {error.name}: it is not installed")
    return found


def of_torchvision() -> Iterator[tuple[str, Callable[[], Made]]]:
    declare_torchvision_schemas()
    library = importlib.import_module("torchvision.models")
    for name in ("mobilenet_v3_small", "densenet121", "efficientnet_b0", "regnet_y_400mf", "vit_b_16"):
        size = 224 if name.startswith("vit") else 96
        yield f"torchvision {name}", lambda name=name, size=size: (library.get_model(name), image(size))  # type: ignore[misc]
    yield (
        "torchvision lraspp_mobilenet_v3_large",
        lambda: (library.get_model("lraspp_mobilenet_v3_large", weights_backbone=None), image(64)),
    )
    yield "torchvision r3d_18", lambda: (library.get_model("r3d_18"), torch.randn(1, 3, 8, 64, 64))


def of_timm() -> Iterator[tuple[str, Callable[[], Made]]]:
    declare_torchvision_schemas()
    library = importlib.import_module("timm")
    for name, size in TIMM:
        yield f"timm {name}", lambda name=name, size=size: (library.create_model(name), image(size, 2))  # type: ignore[misc]


def of_segmentation_models() -> Iterator[tuple[str, Callable[[], Made]]]:
    library = importlib.import_module("segmentation_models_pytorch")
    for name in SEGMENTATION:
        make = getattr(library, name)
        yield f"smp {name}", lambda make=make: (make("resnet18", encoder_weights=None), image(64, 2))  # type: ignore[misc]


def of_transformers() -> Iterator[tuple[str, Callable[[], Made]]]:
    library = importlib.import_module("transformers")
    for family, (name, settings) in TRANSFORMERS.items():
        config, make = getattr(library, f"{family}Config"), getattr(library, name)
        yield (
            f"transformers {family}",
            lambda config=config, make=make, settings=settings: (  # type: ignore[misc]
                make(config(**settings)),
                {"input_ids": torch.randint(5, 90, (2, 7))},
            ),
        )


def declare_torchvision_schemas() -> None:
    """A CPU build of torch may stand beside torchvision's CUDA build, whose import then misses two operators."""
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


LIBRARY = torch.library.Library("torchvision", "FRAGMENT")  # its schemas last as long as it lives


def graph_builder() -> Callable[[nn.Module, Example], object] | None:
    """Torch-Pruning's graph, if it is installed."""
    try:
        library = importlib.import_module("torch_pruning")
    except ImportError:
        print("# without torch-pruning: no comparison")
        return None
    return lambda model, example: library.DependencyGraph().build_dependency(model, example_inputs=example)


def seconds(act: Callable[[], object]) -> float:
    """The CPU time of one call; not a number if it fails."""
    start = time.process_time()
    try:
        act()
    except Exception:  # what a tool cannot read has no time
        return math.nan
    return time.process_time() - start


def measured(
    make: Callable[[], Made], build: Callable[[nn.Module, Example], object] | None, repeats: int
) -> tuple[float, float, float]:
    """The first trace, the least of all traces, and the least of the graphs."""
    torch.manual_seed(0)
    model, example = make()
    ours, theirs = list[float](), list[float]()
    for _ in range(repeats):
        ours.append(seconds(lambda: meristem.trace(model, example)))
        model.eval()
        theirs.append(seconds(lambda: build(model, example)) if build is not None else math.nan)
        model.train()
    return ours[0], min(ours), min(theirs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", default=["*"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--room", action="store_true", help="also trace room for 600 blocks, with depth")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    build, tiny = graph_builder(), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    warm_up = seconds(lambda: meristem.trace(tiny, torch.randn(2, 4)))
    theirs = seconds(lambda: build(tiny, torch.randn(2, 4))) if build is not None else math.nan
    print(f"# first trace of a tiny model: {warm_up:.3f} s, Torch-Pruning {theirs:.3f} s; CPU seconds, 1 thread")
    print(f"{'':40s} {'first':>7s} {'trace':>7s} {'graph':>7s} {'ratio':>7s}")
    ratios: dict[str, float] = {}
    for name, make in models().items():
        if any(fnmatch.fnmatch(name, pattern) for pattern in asked.patterns):
            first, ours, graph = measured(make, build, asked.repeats)
            ratios[name] = ours / graph
            print(f"{name:40s} {first:7.2f} {ours:7.2f} {graph:7.3f} {ratios[name]:7.1f}", flush=True)
    known = [ratio for ratio in ratios.values() if not math.isnan(ratio)]
    if known:
        print(f"# {len(known)} ratios: median {statistics.median(known):.1f}, largest {max(known):.1f}")
    if asked.room:
        room, example = basic3_resnet((200,) * 3), image(32)
        print(f"room for 600 blocks {seconds(lambda: meristem.trace(room, example, depth=True)):.1f} s")


if __name__ == "__main__":
    main()
