"""export, save, load: files that do not fit say what differs, and other exporters accept what comes out."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path

import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import meristem
from helpers import RandomGates, assert_all_near, assert_untouched, build, go, half, run, state_of
from meristem import Live
from meristem.errors import FileError
from meristem.io.export import save
from zoo import ZOO

NAME = "gpt_tied"


@pytest.fixture
def folder(tmp_path: Path, space_of) -> Path:
    """A saved model at half size."""
    model, _ = build(NAME, torch.float32)
    live = Live(model, space_of(NAME))
    go(live, half(live.space))
    meristem.save(live, tmp_path / "saved")
    return tmp_path / "saved"


def refused(folder: Path, message: str, model: nn.Module | None = None) -> None:
    """Loading raises with this message and leaves the model as it was."""
    model = build(NAME, torch.float32)[0] if model is None else model
    before = state_of(model)
    with pytest.raises(FileError, match=message):
        meristem.load(folder, model)
    assert_untouched(model, before)


def damage(folder: Path, change) -> None:
    path = folder / "architecture.json"
    architecture = json.loads(path.read_text())
    path.write_text(json.dumps(change(architecture)))


# --- what fits --------------------------------------------------------------------------------------------------


def test_files(folder: Path) -> None:
    """Two files and no litter; the architecture can be read by a person."""
    assert sorted(path.name for path in folder.iterdir()) == ["architecture.json", "model.safetensors"]
    architecture = json.loads((folder / "architecture.json").read_text())
    assert architecture["groups"]["blocks.0.ffn.body.ffn.up"] == {
        "kind": "width",
        "units": 16,
        "live": list(range(0, 16, 2)),
    }
    assert architecture["tensors"]["tok.weight"] == {
        "full": [11, 8],
        "live": [11, 4],
        "dtype": "float32",
        "names": ["tok.weight", "head.weight"],
    }


def test_saving_again_replaces(folder: Path, space_of) -> None:
    live = Live(build(NAME, torch.float32)[0], space_of(NAME))
    meristem.save(live, str(folder))
    loaded = meristem.load(str(folder), build(NAME, torch.float32)[0])
    assert loaded.tok.weight.shape == (11, 8)


def test_ties_modes_and_flags_survive(folder: Path) -> None:
    model, _ = build(NAME, torch.float32)
    model.eval().pos.requires_grad_(False)
    loaded = meristem.load(folder, model)
    assert loaded is model
    assert loaded.head.weight is loaded.tok.weight
    assert not loaded.pos.weight.requires_grad
    assert not loaded.training
    assert loaded.tok.embedding_dim == 4


def test_a_loaded_model_trains(folder: Path) -> None:
    model, inputs = build(NAME, torch.float32)
    meristem.load(folder, model)
    run(model, inputs)[0].sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtype_survives(dtype: torch.dtype, tmp_path: Path, space_of) -> None:
    live = Live(build("plain", dtype)[0], space_of("plain"))
    meristem.save(live, tmp_path)
    loaded = meristem.load(tmp_path, build("plain", torch.float32)[0])
    assert {p.dtype for p in loaded.parameters()} == {dtype}


@pytest.mark.filterwarnings("ignore:Complex modules are a new feature")
def test_complex_numbers_survive(tmp_path: Path) -> None:
    """safetensors has no type for those of double precision."""
    model = nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 2)).to(torch.complex128)
    x = torch.randn(3, 5, dtype=torch.complex128)
    live = Live(model, meristem.trace(model, x))
    go(live, half(live.space))
    meristem.save(live, tmp_path)
    loaded = meristem.load(tmp_path, nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 2)).to(torch.complex128))
    assert torch.equal(loaded(x), model(x))


def test_channels_last_survives(tmp_path: Path, space_of) -> None:
    model = build("resnet", torch.float32)[0].to(memory_format=torch.channels_last)
    live = Live(model, space_of("resnet"))
    go(live, half(live.space))
    meristem.save(live, tmp_path)
    loaded = meristem.load(tmp_path, build("resnet", torch.float32)[0].to(memory_format=torch.channels_last))
    weight = loaded.body[1].body[0].conv.weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(weight, model.body[1].body[0].conv.weight)


def test_hooks_of_the_user_are_exported(space_of) -> None:
    """Ours go; theirs are theirs."""
    model, inputs = build("plain", torch.float32)
    model.head.register_forward_hook(lambda module, given, out: out + 1)
    live = Live(model, space_of("plain"))
    gates = RandomGates(live.space, dtype=torch.float32).on(live)
    plain = meristem.export(live, gates)
    assert [len(m._forward_hooks) for m in plain.modules() if m._forward_hooks] == [1]
    assert_all_near(run(plain.eval(), inputs), run(model.eval(), inputs), 1e-5)


class Keeping(nn.Module):
    """Keeps what it computed, as people do who look at it later."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.seen = nn.Linear(5, 8), nn.Linear(8, 2), []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hidden = torch.relu(self.one(x))
        self.seen.append({"hidden": self.hidden})
        return self.two(self.hidden)


@pytest.mark.parametrize("pruned", [False, True])
def test_what_was_computed_does_not_hinder(pruned: bool) -> None:
    """Modules may keep results of the last forward pass; torch's pruning keeps the masked weight so."""
    torch.manual_seed(0)
    model, x = Keeping(), torch.randn(3, 5)
    if pruned:
        prune.l1_unstructured(model.one, "weight", 0.3)
    live = Live(model, meristem.trace(model, x))
    go(live, half(live.space))
    model(x).sum().backward()
    small = meristem.export(live)
    assert not small.hidden.requires_grad
    assert model.hidden.requires_grad
    assert_all_near([small(x)], [model(x)], 0)
    small(x).sum().backward()


def test_export_twice_is_the_same(space_of) -> None:
    """Folding works on the copy: the live weights are not scaled a second time."""
    live = Live(build("plain", torch.float32)[0], space_of("plain"))
    gates = RandomGates(live.space, dtype=torch.float32).on(live)
    one, two = meristem.export(live, gates), meristem.export(live, gates)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


# --- what does not ----------------------------------------------------------------------------------------------


def test_missing_folder(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "nowhere holds no architecture.json; give the folder that save")


def test_missing_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    refused(folder, "holds no model.safetensors")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "3", '"x"', "{}", '{"format": "meristem-architecture-1"}', "\udcff"]
)
def test_damaged_json(text: str, folder: Path) -> None:
    (folder / "architecture.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    refused(folder, r"architecture\.json is damaged \(.*\); save it again")


@pytest.mark.parametrize(
    "change",
    [
        lambda a: {**a, "tensors": {**a["tensors"], "tok.weight": None}},
        lambda a: {**a, "tensors": {**a["tensors"], "tok.weight": {"full": "x", "live": [], "names": []}}},
        lambda a: {**a, "sizes": {"a": 1}},
        lambda a: {**a, "sizes": [{"module": "tok"}]},
        lambda a: {**a, "sizes": [{**size, "value": "4"} for size in a["sizes"]]},
        lambda a: {**a, "tensors": []},
        lambda a: {**a, "tensors": None},
        lambda a: {**a, "tensors": {"x" if k == "pos.weight" else k: v for k, v in a["tensors"].items()}},
        lambda a: {**a, "sizes": [{**size, "index": 9} for size in a["sizes"]]},
    ],
    ids=["null entry", "wrong shape", "sizes a dict", "short size", "text size", "list", "null", "other key", "index"],
)
def test_damaged_entries(change, folder: Path) -> None:
    damage(folder, change)
    refused(folder, r"architecture\.json|does not fit")


def test_another_format(folder: Path) -> None:
    damage(folder, lambda a: {**a, "format": "meristem-architecture-9"})
    refused(folder, "has the format 'meristem-architecture-9', expected 'meristem-architecture-1'")


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_truncated_weights(keep: int, folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    refused(folder, r"model\.safetensors is damaged \(.*\); save it again")


def test_weights_of_another_save(folder: Path, tmp_path: Path, space_of) -> None:
    meristem.save(Live(build(NAME, torch.float32)[0], space_of(NAME)), tmp_path / "full")
    os.replace(tmp_path / "full" / "model.safetensors", folder / "model.safetensors")
    refused(folder, r"model\.safetensors is damaged, or not the one architecture\.json was written with")
    damage(folder, lambda found: {name: value for name, value in found.items() if name != "weights_sha256"})
    refused(
        folder, r"model\.safetensors does not belong to architecture\.json: tok.weight is \[11, 8\], expected \[11, 4\]"
    )


def test_another_model(folder: Path) -> None:
    refused(folder, "does not fit this Sequential: the model lacks .* and .* more; the file lacks", build("mlp")[0])


def test_other_arguments(folder: Path) -> None:
    from nets.tokens import GPT

    message = r"tok.weight is \[11, 12\] in the model and \[11, 8\] in the full-size model.*the same arguments"
    refused(folder, f"does not fit this GPT: {message}", GPT(c=12))


def test_a_model_that_is_small_already(folder: Path) -> None:
    model = meristem.load(folder, build(NAME, torch.float32)[0])
    refused(folder, r"tok.weight is \[11, 4\] in the model and \[11, 8\] in the full-size", model)


@pytest.mark.parametrize("saved_tied", [True, False])
def test_other_ties(saved_tied: bool, tmp_path: Path) -> None:
    tied, inputs = build(NAME, torch.float32)
    untied, _ = build(NAME, torch.float32)
    untied.head.weight = nn.Parameter(untied.head.weight.detach().clone())
    here, there = (tied, untied) if saved_tied else (untied, tied)
    meristem.save(Live(here, meristem.trace(here, inputs)), tmp_path)
    refused(tmp_path, "head.weight", there)


def test_a_failed_save_leaves_the_old_files(folder: Path, space_of, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full_disk(*_args, **_kwargs) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(importlib.import_module("meristem.io.export"), "save_file", full_disk)
    with pytest.raises(FileError, match="No space left"):
        meristem.save(Live(build(NAME, torch.float32)[0], space_of(NAME)), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


# --- other exporters --------------------------------------------------------------------------------------------


def shrunken(name: str, space: meristem.Space) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    model, inputs = build(name, torch.float32)
    live = Live(model.eval(), space)
    go(live, half(space))
    return meristem.export(live, RandomGates(space, dtype=torch.float32).on(live)), inputs


@pytest.mark.parametrize("name", ["resnet", "shufflenet", "vit", "gpt_tied", "encoder", "lstm_lm"])
def test_torch_export(name: str, space_of) -> None:
    assert name in ZOO
    plain, inputs = shrunken(name, space_of(name))
    with torch.no_grad():
        program = torch.export.export(plain, inputs)
        assert_all_near(run(program.module(), inputs), run(plain, inputs), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet", "vit"])
def test_onnx(name: str, tmp_path: Path, space_of) -> None:
    """ONNX Runtime computes what the exported small model computes."""
    plain, inputs = shrunken(name, space_of(name))
    with torch.no_grad():
        torch.onnx.export(plain, inputs, tmp_path / "model.onnx", dynamo=True, verbose=False)
        expected = run(plain, inputs)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    got = session.run(None, {key: x.numpy() for key, x in zip(names, inputs, strict=True)})
    assert_all_near([torch.from_numpy(out) for out in got], expected, 1e-4)


def test_flipped_bits_in_the_weights(folder: Path) -> None:
    """safetensors has no checksum; the architecture file keeps one, so that wrong weights are never loaded."""
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    refused(folder, "is damaged, or not the one")


def test_a_folder_that_cannot_be_written(tmp_path: Path, space_of) -> None:
    (tmp_path / "file").write_text("")
    model, _ = build("plain")
    with pytest.raises(FileError, match="cannot be written"):
        meristem.save(Live(model, space_of("plain")), tmp_path / "file")


def test_files_have_the_mode_that_the_umask_gives(tmp_path) -> None:
    model = nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 2))
    live = meristem.Live(model, meristem.trace(model, torch.randn(2, 5)))
    plain = tmp_path / "plain"
    plain.touch()
    save(live, tmp_path / "kept")
    for file in (tmp_path / "kept").iterdir():
        assert file.stat().st_mode == plain.stat().st_mode, file.name
