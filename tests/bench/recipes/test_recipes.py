"""The recipes: settings of the paper, and every short one carried out to the end.

The data are made here, tiny and in the layout of the real ones; where the real samples lie beside the repository, the
short recipes that can use them run on those too, on a part of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import meristem
from meristem.methods import paper_nas
from meristem_bench.cli import main
from meristem_bench.models.mobilenet import MobileNetV1
from meristem_bench.recipes import RECIPES
from meristem_bench.recipes.lookup import find_run
from meristem_bench.runs import Run
from meristem_bench.runs.folder import Folder, read_json
from meristem_bench.runs.training import build_model

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
GROWN = [name for name in RECIPES if not name.endswith("-dense")]
SHORT = [name for name in GROWN if name.endswith("-short") and "-nas-" not in name]  # that one has a test of its own
FULL = [name for name in GROWN if not name.endswith("-short")]
TRANSFORMERS = ("gpt", "vit")
SAMPLES = {"imagenet": SHARED / "imagenet-sample" / "imagenette-224", "voc": SHARED}


# --- data ---


@pytest.fixture(scope="session")
def data_dirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """CIFAR-10, class folders and VOC with a few images each."""
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    cifar = root / "cifar" / "cifar-10-batches-bin"
    cifar.mkdir(parents=True)
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        rows = rng.integers(0, 256, (8, 3073), dtype=np.uint8)
        rows[:, 0] %= 10
        (cifar / name).write_bytes(rows.tobytes())
    for split, count in (("train", 5), ("val", 2)):
        for number in range(10):
            folder = root / "classes" / split / f"class{number}"
            folder.mkdir(parents=True)
            for image in range(count):
                pixels = rng.integers(0, 256, (90, 100, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{image}.jpeg")
    voc = root / "voc" / "VOCdevkit" / "VOC2012"
    for folder in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (voc / folder).mkdir(parents=True)
    for split, count in (("train", 8), ("val", 3)):
        names = [f"{split}_{number}" for number in range(count)]
        (voc / "ImageSets" / "Segmentation" / f"{split}.txt").write_text("\n".join(names))
        for name in names:
            pixels, labels = rng.integers(0, 256, (90, 100, 3), dtype=np.uint8), rng.integers(0, 21, (90, 100))
            Image.fromarray(pixels).save(voc / "JPEGImages" / f"{name}.jpg")
            Image.fromarray(labels.astype(np.uint8)).save(voc / "SegmentationClass" / f"{name}.png")
    (root / "words").mkdir()
    for split, count in (("train", 40), ("valid", 5), ("test", 6)):
        lines = [" ".join(f"word{number}" for number in rng.integers(0, 20, 12)) for _ in range(count)]
        (root / "words" / f"ptb.{split}.txt").write_text("<unk>\n" + "\n".join(lines))
    words = {"ptb": root / "words", "wikitext2": root / "words"}
    return {"cifar10": root / "cifar", "imagenet": root / "classes", "voc": root / "voc", **words}


def kind(name: str) -> str:
    return next(kind for kind in ("cifar10", "imagenet", "voc", "ptb", "wikitext2") if kind in name)


# --- settings ---


def test_every_recipe_has_a_short_and_a_dense_form() -> None:
    for name in FULL:
        assert name == "digits" or f"{name}-short" in RECIPES
    for name in GROWN:
        run, full = find_run(name), find_run(f"{name}-dense")
        assert run.name == name
        assert (full.name, full.growth.method) == (f"{name}-dense", "dense")
        assert full.about == f"The full model of {name}, trained the same way."
        changed = {key for key, value in full.settings.items() if value != run.settings[key]}
        assert changed == {"method"}


@pytest.mark.parametrize(
    ("name", "epochs", "batch", "lr", "rate", "weight_decay", "budget"),
    [
        ("vgg16-cifar10", 160, 128, 0.1, "steps/10@0.5,0.75", 1e-4, "params=5%,macs=13.55%"),
        ("resnet20-cifar10", 160, 128, 0.1, "steps/10@0.5,0.75", 1e-4, "params=36%,macs=50.2%"),
        ("wrn28-10-cifar10", 200, 128, 0.1, "steps/5@0.3,0.6,0.8", 5e-4, "params=9.3%,macs=28.25%"),
        ("resnet50-imagenet", 90, 256, 0.1, f"steps/10@{1 / 3},{2 / 3}", 1e-4, "params=61.2%,macs=50.3%"),
        ("deeplab-v3-voc", 46, 16, 0.007, "polynomial^0.9", 1e-4, "params=50.2%,macs=41.5%"),
    ],
)
def test_settings_are_those_of_the_paper(
    name: str, epochs: int, batch: int, lr: float, rate: str, weight_decay: float, budget: str
) -> None:
    settings = find_run(name).settings
    assert (settings["epochs"], settings["batch"], settings["lr"]) == (epochs, batch, lr)
    assert (settings["rate"], settings["weight_decay"], settings["budget"]) == (rate, weight_decay, budget)
    assert settings["momentum"] == 0.9


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ptb-small", (13, "decay/2@4/13", 20, 5, 0.8, 1, "macs=33%")),
        ("ptb-medium", (39, "decay/1.2@6/39", 35, 5, 0.65, 0.5, "macs=33%")),
        ("ptb-large", (55, "decay/1.15@14/55", 35, 10, 0.65, 0.35, "macs=11.05%")),
    ],
)
def test_settings_of_language_models_are_the_published_ones(name: str, expected: tuple[object, ...]) -> None:
    settings = find_run(name).settings
    names = ("epochs", "rate", "unroll", "clip", "keep", "keep_dense", "budget")
    assert tuple(settings[key] for key in names) == expected
    assert (settings["batch"], settings["lr"], settings["momentum"], settings["weight_decay"]) == (20, 1, 0, 0)
    assert settings["pin"] == "embedding"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-wikitext2", (50, 16, 2, 256)),
        ("gpt-wikitext2-short", (12, 8, 0.5, 128)),
        ("vit-cifar10", (100, 128, 2, 0)),
        ("vit-cifar10-short", (12, 64, 0.5, 0)),
    ],
)
def test_transformers_are_trained_by_adamw_with_a_warmup(name: str, expected: tuple[float, ...]) -> None:
    run = find_run(name)
    settings = run.settings
    assert tuple(settings[key] for key in ("epochs", "batch", "warmup", "context")) == expected
    assert (settings["optimizer_kind"], settings["weight_decay"], settings["clip"]) == ("adamw/0.9,0.99", 0.1, 1)
    assert (settings["rate"], settings["budget"], settings["depth"]) == ("cosine", "params=33%", True)
    assert settings["method"] == "default:peak=1"
    undecayed = {name for name, p in build_model(run).named_parameters() if not run.optimizer.decays(name, p)}
    assert undecayed > {"blocks.0.norm1.weight", "blocks.0.up.bias"}
    assert undecayed & {"tokens.weight", "positions", "positions.weight"}
    assert not [name for name in undecayed if name.endswith(("qkv.weight", "up.weight", "patches.weight"))]


@pytest.mark.parametrize(
    ("name", "width", "size", "share"),
    [("mobilenet-v1-224-imagenet", 0.75, 224, 0.83), ("mobilenet-v1-128-imagenet", 0.25, 128, 0.73)],
)
def test_the_mobilenets_get_the_papers_share_of_a_narrower_ones_macs(
    name: str, width: float, size: int, share: float
) -> None:
    with torch.device("meta"):
        narrower = MobileNetV1(width)
    macs = meristem.count_macs(meristem.trace(narrower, torch.zeros(1, 3, size, size, device="meta")))
    run = find_run(name)
    assert run.data.size == size
    assert run.growth.budget.macs == pytest.approx(share * macs, rel=1e-4)
    assert run.growth.budget.macs <= share * macs
    undecayed = [p.shape for name, p in build_model(run).named_parameters() if not run.optimizer.decays(name, p)]
    assert len(undecayed) == 13
    assert all(shape[1:] == (1, 3, 3) for shape in undecayed)


def test_depth_is_fine_tuned_as_in_the_paper() -> None:
    deep = {
        name: find_run(name).fine_tuning.epochs
        for name in FULL
        if find_run(name).growth.depth and not name.startswith(TRANSFORMERS) and not name.endswith("-nas")
    }
    assert deep == {name: 40 if "cifar10" in name else 20 for name in deep}
    assert len(deep) == 4
    assert not any(find_run(name).fine_tuning.epochs for name in GROWN if name not in deep)


def test_the_search_has_the_papers_budget_and_bases() -> None:
    """Its lambda 1, of units, is 2.0 and its lambda 2, of blocks, 0.1."""
    run, method = find_run("bottleneck4-resnet-imagenet-nas"), paper_nas()
    assert run.growth.budget.params == 7_000_000
    assert (run.growth.method, run.growth.depth) == ("paper-nas", True)
    assert method.controller.deep_base == 2.0
    assert method.controller.deep_base * method.scores.block_weight == pytest.approx(0.1)


# --- carrying them out ---


def few_steps(run: Run, kind: str) -> Run:
    """As it is, but over almost no data."""
    if kind == "ptb":
        return run.with_settings({"batch": 4, "samples": 60, "epochs": 3, "threads": 1, "unroll": 2})
    if kind == "wikitext2":
        few = {"batch": 2, "samples": 64, "held_out": 50, "context": 8}
        return run.with_settings({**few, "epochs": 3, "warmup": 0.5, "threads": 1})
    few = {"cifar10": (8, 4, 16), "imagenet": (10, 8, 16), "voc": (2, 2, 4)}[kind]
    settings = dict(zip(("held_out", "batch", "samples"), few, strict=True))
    settings["epochs"] = 3
    if run.data.size > 32 and kind == "imagenet":
        settings["size"] = 32
    return run.with_settings({**settings, "threads": 1, **({"size": 65} if kind == "voc" else {})})


def flags(run: Run, base: Run) -> list[str]:
    return [f"--set={key}={value}" for key, value in run.settings.items() if value != base.settings[key]]


@pytest.mark.parametrize("name", SHORT)
def test_a_short_recipe_lands_on_its_budget_and_its_network_gives_the_same_result_again(
    name: str, data_dirs: dict[str, Path], tmp_path: Path, fresh_process: Callable[..., str]
) -> None:
    run = few_steps(find_run(name), kind(name))
    out = str(tmp_path / "run")
    assert main(["grow", name, "--data", str(data_dirs[kind(name)]), "--out", out, *flags(run, find_run(name))]) == 0
    result = read_json(Folder(Path(out)).result)
    caps = {metric: getattr(run.growth.budget, metric) for metric in ("params", "macs")}
    left = {m: float(cap.rstrip("%")) / 100 - result[f"{m}_frac"] for m, cap in caps.items() if cap is not None}
    assert 0 <= min(left.values()) < 0.01  # one cap is used up; with two of them the other may not be
    lines = [line.split() for line in fresh_process("evaluate", out).splitlines()[1:]]
    assert {line[0] for line in lines} == set(result["test"])
    for metric, now, then in lines:
        assert float(now) == pytest.approx(float(then), rel=1e-6, abs=2e-6), metric


def test_what_was_found_is_trained_from_scratch_by_one_command(data_dirs: dict[str, Path], tmp_path: Path) -> None:
    """The same widths and the same blocks, with other weights; what the search cost is part of the total."""
    name = "bottleneck4-resnet-imagenet-nas-short"
    run = few_steps(find_run(name), "imagenet").replace(epochs=2)  # in a third all blocks would come
    out = tmp_path / "out"
    words = ["--data", str(data_dirs["imagenet"]), "--out", str(out), *flags(run, find_run(name))]
    assert main(["sweep", name, "--arms", "grown,direct", *words]) == 0
    folders = [Folder(out / "params=12.2%" / f"{arm}-seed0") for arm in ("grown", "direct")]
    grown, direct = (read_json(folder.result) for folder in folders)
    assert grown["params_frac"] <= 0.122
    assert direct["widths"] == grown["widths"]
    assert direct["blocks"] == grown["blocks"]
    absent = [read_json(folder.model / "architecture.json")["absent"] for folder in folders]
    assert absent[0] == absent[1]
    assert absent[0], "no block was absent"
    assert direct["params"] == grown["params"]
    weights = [(folder.model / "model.safetensors").read_bytes() for folder in folders]
    assert weights[0] != weights[1]
    history = [json.loads(line) for line in folders[1].history.read_text().splitlines()]
    assert all(record["widths"] == grown["widths"] for record in history), "nothing grows"
    assert main(["evaluate", str(folders[1].path)]) == 0
    assert direct["total_spend_frac"] == pytest.approx(direct["spend_frac"] + grown["spend_frac"])
