"""Runs that start from weights in a file: what fits is taken over, what does not is named, the rest is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from meristem.errors import FileError, MeristemError
from meristem_bench.cli import main
from meristem_bench.data.arrays import Arrays
from meristem_bench.models.deeplab_v3 import DeepLabV3
from meristem_bench.models.resnet_imagenet import ResNetImageNet, resnet101
from meristem_bench.models.torchvision_names import from_torchvision
from meristem_bench.runs import Machine, OptimizerConfig, Run
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.loop import run_to_end
from meristem_bench.runs.pretrained import load_pretrained
from meristem_bench.runs.task import Classification
from meristem_bench.runs.training import build
from tiny_recipe import tiny_recipe
from watching import Watch, traces


def sorting(run: Run) -> Arrays:
    inputs = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
    parts = {"train": slice(0, 32), "validation": slice(32, 64), "test": slice(64, 96)}
    return Arrays({name: (inputs[part], inputs[part, :3].argmax(1)) for name, part in parts.items()})


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 3))


def tiny(**changes: Any) -> Run:
    parts = {"optimizer": OptimizerConfig(lr=0.1), "machine": Machine(threads=1)}
    run = Run("tiny", "Tiny.", network, sorting, Classification(), epochs=4, batch=16, **parts)
    return run.replace(**changes)


def saved(path: Path, seed: int = 7, make: Callable[[], nn.Module] = network, **changes: Tensor) -> Path:
    """A state dict in a file; the suffix says how it is written."""
    torch.manual_seed(seed)
    state = {**make().state_dict(), **changes}
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
    return path


def torchvision_names(blocks: tuple[int, ...]) -> list[str]:
    """All names of a ResNet of bottlenecks there, as its documentation has them."""
    layers = ["conv1", "bn1"]
    for stage, count in enumerate(blocks, start=1):
        for number in range(count):
            parts = [f"{kind}{place}" for place in (1, 2, 3) for kind in ("conv", "bn")]
            parts += ["downsample.0", "downsample.1"] if number == 0 else []
            layers += [f"layer{stage}.{number}.{part}" for part in parts]
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    convolutions = [f"{layer}.weight" for layer in layers if "conv" in layer or layer.endswith("downsample.0")]
    norms = [f"{layer}.{part}" for layer in layers if "bn" in layer or layer.endswith("downsample.1") for part in norm]
    return [*convolutions, *norms, "fc.weight", "fc.bias"]


# --- names and shapes ---


def test_torchvisions_names_are_ours() -> None:
    with torch.device("meta"):
        ours = resnet101().state_dict()
    names = [from_torchvision(name) for name in torchvision_names((3, 4, 23, 3))]
    assert sorted(names) == sorted(ours)
    assert [from_torchvision(name) for name in ours] == list(ours)
    assert from_torchvision("layer1.0.attention.weight") == "layer1.0.attention.weight"


def test_a_classifier_of_torchvision_lends_its_backbone_to_segmentation(tmp_path: Path) -> None:
    classifier, model = ResNetImageNet(50, 1000, 4), DeepLabV3(5, 50, width=4, pyramid_width=8)
    ours = {from_torchvision(name): name for name in torchvision_names((3, 4, 6, 3))}
    state = {ours[name]: value for name, value in classifier.state_dict().items()}
    torch.save(state, tmp_path / "resnet50.pth")
    built = {name: value.clone() for name, value in model.state_dict().items()}
    note = load_pretrained(model, str(tmp_path / "resnet50.pth"))
    for name, value in model.state_dict().items():
        same = classifier.state_dict()[name] if name.startswith(("stem.", "stages.")) else built[name]
        assert torch.equal(value, same), name
    assert "of another shape in the file: head.weight, head.bias; not in the file: pyramid.branches.0.0.weight" in note


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_what_fits_is_taken_over_and_the_rest_is_named(suffix: str, tmp_path: Path) -> None:
    path = saved(tmp_path / f"weights.{suffix}", **{"4.weight": torch.ones(5, 24), "more": torch.ones(1)})
    model, expected = network(), network()
    built = model[4].weight.detach().clone()
    expected.load_state_dict({**torch.load(saved(tmp_path / "same.pt")), "4.weight": built})
    note = load_pretrained(model, str(path))
    for name, value in model.state_dict().items():
        assert torch.equal(value, expected.state_dict()[name]), name
    assert note == (
        f"pretrained: 8 of 9 tensors are from {path}; of another shape in the file: 4.weight; only in the file: more"
    )


# --- runs ---


def test_every_arm_starts_from_the_same_tensors_and_grows_pretrained_units(tmp_path: Path) -> None:
    path = saved(tmp_path / "weights.pt")
    weights = torch.load(path)
    for method in ("dense", "paper"):
        training = build(tiny(method=method, pretrained=str(path), seed=3), None)
        live = training.grower.live
        live.apply(live.plan({name: range(units) for name, units in live.space.full.items()}))
        assert torch.equal(training.model[0].weight, weights["0.weight"])
        assert torch.equal(training.model[4].weight, weights["4.weight"])


def test_a_pretrained_run_resumes_with_the_same_bits_wherever_the_file_is(tmp_path: Path) -> None:
    path, whole, folder = saved(tmp_path / "weights.pt"), Folder(tmp_path / "whole"), Folder(tmp_path / "stopped")
    run, watch = tiny(pretrained=str(path)), Watch()
    run_to_end(run, whole, watch)
    assert watch.notes == [f"pretrained: 9 of 9 tensors are from {path}"]
    with pytest.raises(KeyboardInterrupt):
        run_to_end(run, folder, Watch(lambda epoch, step: epoch == 2))
    moved, resumed = path.rename(tmp_path / "moved.pt"), Watch()
    with pytest.raises(FileError, match=r"weights\.pt is no file"):
        run_to_end(run, folder, Watch())
    run_to_end(run.replace(pretrained=str(moved)), folder, resumed)
    assert not resumed.notes
    assert traces(folder) == traces(whole)


def test_a_run_that_was_not_pretrained_does_not_become_so(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        run_to_end(tiny(), folder, Watch(lambda epoch, step: epoch == 2))
    path = saved(tmp_path / "weights.pt")
    with pytest.raises(FileError, match="was written with pretrained=None, but pretrained="):
        run_to_end(tiny(pretrained=str(path)), folder, Watch())


@pytest.mark.usefixtures("forked_studies")
def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pretrained_recipe.py").write_text(tiny_recipe(epochs=2))
    saved(tmp_path / "weights.pt")
    words = ["grow", "pretrained_recipe:tiny", "--out", "run", "--set", "pretrained=weights.pt"]
    assert main(words) == 0
    assert f"pretrained: 9 of 9 tensors are from {tmp_path}/weights.pt\n" in capsys.readouterr().out
    assert main([*words[:2], "--resume", "run", "--set", "pretrained=other.pt"]) == 0  # finished: it needs no file
    assert main(["sweep", "pretrained_recipe:tiny", "--arms", "grown,dense", "--jobs", "2", *words[4:]]) == 0
    capsys.readouterr()
    assert main(["grow", "pretrained_recipe:tiny", "--out", "none", "--set", "pretrained=none.pt"]) == 2
    assert "none.pt is no file; give a state dict that torch.save has written, or" in capsys.readouterr().err
    assert not Path("none").exists()


# --- refusals ---


@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
@pytest.mark.parametrize("cut", [0, 20, -30])
def test_a_damaged_file_is_refused(name: str, cut: int, tmp_path: Path) -> None:
    path = saved(tmp_path / name)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(FileError, match=r"cannot be read \(\w+\); give a state dict that torch.save has written"):
        load_pretrained(network(), str(path))


class Executed:
    def __reduce__(self) -> Any:
        return print, ("executed",)


@pytest.mark.parametrize("content", [[torch.ones(1)], {"epoch": 3}, {"state_dict": {"0.weight": torch.ones(1)}}])
def test_something_else_than_a_state_dict_is_refused(content: Any, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(FileError, match="holds something else than tensors by name; give a state dict"):
        load_pretrained(network(), str(tmp_path / "x.pt"))


def test_nothing_in_a_file_is_executed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"0.weight": Executed()}, tmp_path / "x.pt")
    with pytest.raises(FileError, match=r"cannot be read \(UnpicklingError\)"):
        load_pretrained(network(), str(tmp_path / "x.pt"))
    assert not capsys.readouterr().out


def test_a_file_of_which_nothing_fits_is_refused(tmp_path: Path) -> None:
    """A counter of batches has the same shape everywhere; that is not enough."""
    path = saved(tmp_path / "x.pt", make=lambda: nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    with pytest.raises(FileError, match=r"x\.pt: no tensor in it fits the model; the file has 0\.weight, 0\.bias, "):
        load_pretrained(network(), str(path))


def test_blocks_that_come_and_go_cannot_be_pretrained() -> None:
    with pytest.raises(MeristemError, match=r"pretrained=x\.pt and depth=yes do not go together"):
        tiny(pretrained="x.pt", depth=True)
