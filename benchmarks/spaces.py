"""Spaces as text, so that two versions of the tracer can be compared: a faster one must find the very same.

    python benchmarks/spaces.py before                    # one file a model: zoo, fuzzer, benchmarks/tracing.py
    python benchmarks/spaces.py after 'zoo *' 'timm *'    # some of them, by pattern
    diff -r before after

The text holds all of a space: groups, what is pinned and why, sites and attributes with the units of every position,
slots, cost terms, blocks, notes. Set ``PYTHONPATH`` to the ``src`` of the version that is to be looked at.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

import meristem
from meristem.space.axis import Axis

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # before this folder, which has a zoo of its own
import tracing

from deep import ALL_NETS, DEEP
from fuzz.not_covered import NOT_COVERED
from fuzz.recipe import build, random_recipe

RECIPES, MOST_STEPS = 300, 3  # those of tests/fuzz
TIMM = (
    "resnet18 vit_tiny_patch16_224 convnext_atto efficientnet_b0 mobilenetv3_small_050 regnetx_002 resnest14d "
    "densenet121 mixer_s32_224 pvt_v2_b0 xcit_nano_12_p16_224 volo_d1_224 cait_xxs24_224 maxvit_tiny_tf_224 "
    "swin_tiny_patch4_window7_224 davit_tiny coatnet_nano_rw_224 edgenext_xx_small mobilevit_xxs shufflenet_v2_x0_5"
)


def traced() -> Iterator[tuple[str, Callable[[], meristem.Space]]]:
    """What traces each model, by name."""
    for name, net in ALL_NETS.items():
        yield f"zoo {name}", lambda name=name, net=net: meristem.trace(*net.build(), depth=name in DEEP)  # type: ignore[misc]
    for seed in range(RECIPES):
        recipe = random_recipe(seed, MOST_STEPS, frozenset(NOT_COVERED))
        yield f"fuzz {seed}", lambda recipe=recipe: meristem.trace(*build(recipe))  # type: ignore[misc]
    known = tracing.models()
    for name, make in known.items():
        yield f"bench {name}", lambda make=make: meristem.trace(*make())  # type: ignore[misc]
    if any(name.startswith("timm") for name in known):
        for name in TIMM.split():
            yield f"timm {name}", lambda name=name: of_timm(name)  # type: ignore[misc]


def of_timm(name: str) -> meristem.Space:
    import timm

    model = timm.create_model(name)
    return meristem.trace(model, torch.randn(1, *model.default_cfg["input_size"]))


def text_of(space: meristem.Space) -> str:
    """All that a space holds."""
    lines = [f"group {group}" for group in space.groups.values()]
    lines += [f"pinned {pinned}" for pinned in space.pinned]
    for site in space.sites:
        lines.append(f"site {site.tensor} {site.dim} {sorted(role.value for role in site.roles)} {_axis(site.axis)}")
    lines += [f"{slot}" for slot in space.slots]
    lines += [f"attribute {each.module} {each.name} {each.index} {_axis(each.axis)}" for each in space.attributes]
    lines += [f"term {term.factor} {term.module} {[_axis(axis) for axis in term.axes]}" for term in space.terms]
    lines += [f"tensor {tensor}" for tensor in space.tensors.values()]
    lines += [f"state {state.path} {[_axis(axis) for axis in state.axes]}" for state in space.states]
    lines += [f"{stage}" for stage in space.stages]
    lines += [f"note {note}" for note in space.notes]
    return "\n".join([*lines, f"{space.costs} {space.carried} {space.outputs}", ""])


def _axis(axis: Axis) -> str:
    parts = [
        f"{part.group}:{hashlib.sha1(part.units.astype('int64').tobytes()).hexdigest()[:8]}" for part in axis.parts
    ]
    return f"{axis} [{axis.size} {' '.join(parts)}]"


def described(trace: Callable[[], meristem.Space]) -> str:
    """The space as text, or what tracing said."""
    torch.manual_seed(0)
    try:
        return text_of(trace())
    except Exception as error:  # a refusal is a result, too
        return f"{type(error).__name__}: {error}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("patterns", nargs="*", default=["*"])
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    asked.folder.mkdir(parents=True, exist_ok=True)
    print(f"# {meristem.__file__}")
    for name, trace in traced():
        if any(fnmatch.fnmatch(name, pattern) for pattern in asked.patterns):
            (asked.folder / f"{name}.txt").write_text(described(trace))


if __name__ == "__main__":
    main()
