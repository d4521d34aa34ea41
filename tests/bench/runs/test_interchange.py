"""``meristem export --onnx --torch-export``: other programs read the network and compute what it computes."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import meristem
from meristem.errors import DataError, MeristemError
from meristem_bench.cli import main
from meristem_bench.data.arrays import Arrays
from meristem_bench.data.text_bytes import TextBytes
from meristem_bench.data.words import Words
from meristem_bench.models.gpt import GPT
from meristem_bench.models.lstm import LstmLm
from meristem_bench.models.resnet_cifar import ResNetCifar
from meristem_bench.recipes.digits import digits
from meristem_bench.runs import Data, Run
from meristem_bench.runs.interchange import Interchange, difference
from other_libraries import library
from tiny_recipe import tiny_recipe

onnxruntime = library("onnxruntime")
library("onnxscript")


def images(count: int = 5) -> Arrays:
    torch.manual_seed(0)
    split = torch.randn(count, 1, 8, 8), torch.arange(count) % 3
    return Arrays({"train": split, "test": split})


def shrunken(model: nn.Module, example: tuple[Tensor, ...], **options: object) -> nn.Module:
    """The model with half of its units, trained statistics or not."""
    live = meristem.Live(model, space := meristem.trace(model, example, **options))
    live.apply(live.plan({name: range(0, group.units, 2) for name, group in space.groups.items()}))
    return meristem.export(live)


def residual() -> tuple[Run, Data, nn.Module]:
    data = images()
    return digits().replace(batch=4), data, shrunken(ResNetCifar(depth=8, channels=1, classes=3), data.example)


def words() -> tuple[Run, Data, nn.Module]:
    """A network that carries a state, whose batch is its second dimension."""
    text = torch.arange(120) % 7
    data = Words(("<eos>", *"abcdef"), {"train": text, "test": text}, unroll=3)
    network = shrunken(LstmLm(7, 6, (8, 8)), data.example, carried=1)
    return digits().replace(batch=4, unroll=3), data, network


def text() -> tuple[Run, Data, nn.Module]:
    splits = {"train": torch.arange(200, dtype=torch.uint8) % 11, "test": torch.arange(90, dtype=torch.uint8) % 11}
    data = TextBytes(splits, context=8)
    return digits().replace(batch=3), data, shrunken(GPT(11, 8, channels=8, heads=2, blocks=2), data.example)


@pytest.mark.parametrize("build", [residual, words, text])
def test_other_programs_compute_the_same_for_batches_of_any_size(build, tmp_path: Path) -> None:
    run, data, network = build()
    interchange = Interchange(run, data, network)
    for written in (interchange.write_onnx(tmp_path / "a.onnx"), interchange.write_torch_export(tmp_path / "a.pt2")):
        assert written.any_batch
        assert written.samples == run.batch
        assert written.difference < 1e-5
        assert f"computes the same on {run.batch} test samples" in str(written)
        assert written.path.is_file()
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx", providers=["CPUExecutionProvider"])
    state = 4 * (build is words)  # hidden units and cells of two layers go in, and the next ones come out
    assert (len(session.get_inputs()), len(session.get_outputs())) == (1 + state, 1 + state)


class OneSample(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.linear(images.view(1, 64))


def test_a_model_that_fixes_the_size_of_a_batch_says_so(tmp_path: Path) -> None:
    written = Interchange(digits(), images(1), OneSample()).write_torch_export(tmp_path / "a.pt2")
    assert not written.any_batch
    assert str(written).endswith("takes one sample at a time, because the model fixes the size of a batch")


class ByValue(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images if images.sum() > 0 else -images


def test_what_torch_cannot_follow_is_one_sentence() -> None:
    with pytest.raises(MeristemError, match=r"torch.export cannot follow ByValue \(.*\); export without --onnx"):
        Interchange(digits(), images(), ByValue())


def test_a_file_that_computes_something_else_is_not_kept(tmp_path: Path) -> None:
    run, data, network = residual()
    interchange = Interchange(run, data, network)
    with torch.no_grad():
        network.head.bias = nn.Parameter(network.head.bias + 1.0)
    with pytest.raises(MeristemError, match=r"something else than the network.*so a\.pt2 was not kept"):
        interchange.write_torch_export(tmp_path / "a.pt2")
    assert not list(tmp_path.iterdir())


def test_data_that_cannot_be_read_are_one_sentence() -> None:
    class Damaged(Arrays):
        def evaluate(self, split: str, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
            raise ValueError("the file x is damaged")

    with pytest.raises(DataError, match="digits: the file x is damaged"):
        Interchange(digits(), Damaged(images().splits), OneSample())


def test_outputs_of_another_shape_are_as_different_as_can_be() -> None:
    assert difference([torch.ones(2)], [torch.ones(3)]) == float("inf")
    assert difference([torch.ones(2), torch.tensor([1.0, 3.0])], [torch.ones(2), torch.tensor([1.0, 4.0])]) == 0.25


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    (tmp_path / "exported_recipe.py").write_text(tiny_recipe(epochs=2))
    monkeypatch.chdir(tmp_path)
    assert main(["grow", "exported_recipe:tiny", "--out", "run"]) == 0
    capsys.readouterr()
    return "run"


def test_the_command_writes_both_of_a_finished_and_an_unfinished_run(
    run_folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", run_folder, "--recipe", "exported_recipe:tiny", "--onnx", "--torch-export"]
    for out in ("finished", "unfinished"):
        assert main([*words, "--out", out]) == 0
        printed = capsys.readouterr().out
        assert f"{out}/model.onnx: ONNX Runtime {onnxruntime.__version__} computes the same on 16 test" in printed
        assert f"{out}/model.pt2: torch.export computes the same on 16 test samples" in printed
        assert {path.name for path in Path(out).iterdir()} == {
            *("architecture.json", "model.safetensors", "model.onnx", "model.pt2"),
        }
        Path(run_folder, "result.json").unlink(missing_ok=True)
    small = json.loads(Path("finished/architecture.json").read_text())["groups"]
    session = onnxruntime.InferenceSession("finished/model.onnx", providers=["CPUExecutionProvider"])
    assert session.get_outputs()[0].shape[1] == 3
    assert 0 < sum(len(group["live"]) for group in small.values()) < 24


def test_without_onnx_the_extra_is_named_before_anything_is_written(
    run_folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "onnxruntime" else find(name))
    assert main(["export", run_folder, "--out", "small", "--onnx"]) == 2
    assert capsys.readouterr().err == "meristem: --onnx needs onnxruntime: pip install 'meristem[onnx]'\n"
    assert not Path("small").exists()
