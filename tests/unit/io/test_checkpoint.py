"""checkpoint: what goes in comes out bit for bit, a damaged file is always refused, a kill never leaves one behind."""

from __future__ import annotations

import copy
import errno
import hashlib
import json
import math
import os
import pickle
import random
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter, OrderedDict, defaultdict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from torch import nn
from torch.optim import lr_scheduler

from meristem.errors import FileError
from meristem.io import checkpoint

KIND = "test-1"
DTYPES = sorted(
    {
        dtype
        for name in dir(torch)
        if isinstance(dtype := getattr(torch, name), torch.dtype) and not name.startswith(("q", "bits"))
    },
    key=str,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.ckpt"


def round_trip(path: Path, state: Any) -> Any:
    checkpoint.write(path, state, kind=KIND)
    return checkpoint.read(path, kind=KIND)


def raw(tensor: torch.Tensor) -> bytes:
    row = tensor.detach().contiguous().reshape(-1)
    return row.view(torch.uint8).numpy().tobytes()


def assert_same(left: Any, right: Any, where: str = "state") -> None:
    """Equal in type, structure, order and every bit."""
    assert type(left) is type(right), where
    if isinstance(left, dict):
        assert list(left) == list(right), where
        assert [type(key) for key in left] == [type(key) for key in right], where
        for key in left:
            assert_same(left[key], right[key], f"{where}.{key}")
        assert_same(getattr(left, "_metadata", None), getattr(right, "_metadata", None), f"{where}._metadata")
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right), where
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            assert_same(one, other, f"{where}[{index}]")
    elif isinstance(left, torch.Tensor):
        assert (left.dtype, left.shape) == (right.dtype, right.shape), where
        assert raw(left) == raw(right), where
    elif isinstance(left, (np.ndarray, np.generic)):
        assert (left.dtype, left.shape) == (right.dtype, right.shape), where
        assert left.tobytes() == right.tobytes(), where
    elif isinstance(left, float):
        assert struct.pack(">d", left) == struct.pack(">d", right), where
    else:
        assert left == right, where


def refused(path: Path, *parts: str, kind: str = KIND) -> None:
    """Reading raises one sentence with the path and these parts."""
    with pytest.raises(FileError) as caught:
        checkpoint.read(path, kind=kind)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    for part in parts:
        assert part in message


def not_written(path: Path, state: Any, *parts: str) -> None:
    """Writing raises with these parts and leaves the folder as it was."""
    before = sorted(path.parent.iterdir()) if path.parent.is_dir() else None
    with pytest.raises(FileError) as caught:
        checkpoint.write(path, state, kind=KIND)
    for part in parts:
        assert part in str(caught.value)
    assert (sorted(path.parent.iterdir()) if path.parent.is_dir() else None) == before


# --- exact round trips --------------------------------------------------------------------------------------------

keys = st.one_of(st.text(max_size=6), st.integers())
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(), max_size=8),
    st.lists(st.floats(width=32), max_size=4).map(torch.tensor),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(lambda values: np.array(values, np.int64)),
    st.floats().map(np.float64),
    st.floats(width=32).map(np.float32),
    st.booleans().map(np.bool_),
    st.integers(0, 2**64 - 1).map(np.uint64),
)
states = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(keys, inner, max_size=4).map(OrderedDict),
    ),
    max_leaves=12,
)


@settings(max_examples=60)
@given(state=states)
def test_any_nesting(tmp_path_factory: pytest.TempPathFactory, state: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.ckpt"
    assert_same(round_trip(path, state), state)


CORNERS: dict[str, Any] = {
    "nothing": [None, {}, [], (), "", OrderedDict()],
    "floats": [0.1, -0.0, 5e-324, 1.7976931348623157e308, math.nan, -math.nan, math.inf, -math.inf],
    "integers": [2**63 - 1, 2**63, -(2**63), 10**5000, -(10**5000)],
    "strings": ["\ud800", "\ud800\udc00", "\U00010000", "\x00\n\"'\\", "дерево", '"digest":"'],
    "keys": {1: "int", "1": "str", -7: "negative", "\udfff": "half", 2**70: "large"},
    "our own tags": {"a": {"tuple": [1]}, "b": {"block": 0}, "c": {"float": "nan"}},
    "tuples": ((), ((1,), [(2,)])),
    "counter": Counter({3: 2, 1: 1}),
    "numpy": [
        np.str_("a\x00"),
        np.str_(""),
        np.float16("nan"),
        np.complex128(1 - 2j),
        np.int8(-1),
        np.longdouble(1) / 3,
    ],
    "times": [np.datetime64("NaT"), np.timedelta64(3, "s"), np.datetime64("2020-01-01T00", "ns")],
    "one number": 1.5,
}


@pytest.mark.parametrize("name", CORNERS)
def test_corners(path: Path, name: str) -> None:
    assert_same(round_trip(path, CORNERS[name]), CORNERS[name])


def test_nan_keeps_its_bits(path: Path) -> None:
    odd = [struct.unpack(">d", bytes.fromhex(text))[0] for text in ("7ff8000000000123", "fff8000000000001")]
    assert_same(round_trip(path, odd), odd)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_every_dtype(path: Path, dtype: torch.dtype) -> None:
    """Random bits, whatever they mean: nan with content, denormal numbers."""
    bits = torch.randint(0, 256, (6 * dtype.itemsize,), dtype=torch.uint8)
    tensor = (bits & 1).view(dtype) if dtype == torch.bool else bits.view(dtype)
    back = round_trip(path, {"row": tensor, "table": tensor.view(2, 3), "zero": tensor[0], "none": tensor[:0]})
    assert back["row"].dtype is dtype
    assert raw(back["row"]) == raw(tensor)
    assert raw(back["table"]) == raw(tensor)
    assert back["table"].shape == (2, 3)
    assert back["zero"].shape == ()
    assert raw(back["zero"].reshape(1)) == raw(tensor[:1])
    assert back["none"].shape == (0,)


def layouts() -> dict[str, torch.Tensor]:
    base = torch.randn(2, 3, 4, 5)
    return {
        "contiguous": base,
        "channels_last": base.contiguous(memory_format=torch.channels_last),
        "channels_last_1": torch.randn(2, 1, 4, 5).contiguous(memory_format=torch.channels_last),
        "channels_last_3d": torch.randn(1, 2, 3, 4, 5).contiguous(memory_format=torch.channels_last_3d),
        "transposed": base.permute(3, 0, 2, 1),
        "offset": base[1],
        "odd_offset": torch.randn(9)[1:4],
        "zero_dim": torch.tensor(3.5),
        "empty": torch.empty(3, 0, 2).transpose(0, 2),
        "sliced": base[:, 1:, ::2],
        "expanded": torch.randn(3, 1).expand(3, 4),
        "diagonal": torch.randn(4, 4).diagonal(),
        "conjugated": torch.randn(3, 2, dtype=torch.complex64).T.conj(),
        "negated": torch.randn(3, dtype=torch.complex64).conj().imag,
        "parameter": nn.Parameter(torch.randn(2, 2)).T,
    }


@pytest.mark.parametrize("name", layouts())
def test_layouts(path: Path, name: str) -> None:
    """A convolution may round differently in another memory format, so strides without gaps come back too."""
    tensor = layouts()[name]
    back = round_trip(path, tensor)
    assert not back.requires_grad
    assert back.dtype is tensor.dtype
    assert torch.equal(back, tensor.detach())
    gaps = name in ("sliced", "expanded", "diagonal", "negated")
    assert back.stride() == (tensor.contiguous() if gaps else tensor).stride()
    assert back.untyped_storage().nbytes() == tensor.nbytes


def test_read_tensors_are_ordinary(path: Path) -> None:
    """They can be trained: leaves with memory of their own, not views of a file."""
    first, second = round_trip(path, [torch.ones(3), torch.ones(3)])
    assert not first._is_view()
    first.requires_grad_().sum().backward()
    with torch.no_grad():
        first.mul_(2)
    assert first.tolist() == [2, 2, 2]
    assert second.tolist() == [1, 1, 1]


def test_parameters_become_tensors(path: Path) -> None:
    parameter = nn.Parameter(torch.randn(3))
    assert_same(round_trip(path, [parameter]), [parameter.detach()])


def test_shared_tensors_stay_shared(path: Path) -> None:
    tensor, array = torch.randn(1000), np.arange(1000.0)
    back = round_trip(path, {"a": tensor, "b": [tensor, array], "c": array})
    assert back["a"] is back["b"][0]
    assert back["b"][1] is back["c"]
    assert path.stat().st_size < 13000
    tied = nn.Linear(2, 2).state_dict()
    tied["again"] = tied["weight"].detach()  # the same memory, another object: safetensors itself refuses it
    assert_same(round_trip(path, tied), tied)


@pytest.mark.parametrize(
    "array",
    [
        np.array(3, np.uint32),
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(20.0)[::3],
        np.broadcast_to(np.float32(2), (3, 4)),
        np.zeros((0, 3)),
        np.array([True, False]),
        np.array([1 + 2j, math.nan], np.complex64),
        np.array([["a", "дерево"]]),
        np.array([b"a", b"bcd"]),
        np.array(["2020-01-01", "NaT"], "M8[ns]"),
        np.arange(3, dtype=np.longdouble),
    ],
    ids=lambda array: f"{array.dtype.str}{array.shape}",
)
def test_arrays(path: Path, array: np.ndarray) -> None:
    back = round_trip(path, array)
    assert_same(back, array)
    assert back.flags.fnc == array.flags.fnc
    assert back.flags.writeable


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_optimizers_go_on(path: Path, optimizer: Any) -> None:
    """Model, optimizer, schedulers and random numbers, stored in the middle: the second half is the same."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.3), nn.Flatten(), nn.LazyLinear(3))
    model(torch.randn(1, 2, 5, 5))
    model = model.to(memory_format=torch.channels_last)

    def parts(net: nn.Module) -> tuple[Any, ...]:
        extra = {"momentum": 0.9} if optimizer is torch.optim.SGD else {"amsgrad": True}
        steps = optimizer(net.parameters(), lr=0.1, **extra)
        return net, steps, lr_scheduler.MultiStepLR(steps, [2, 2, 5]), lr_scheduler.ReduceLROnPlateau(steps)

    def train(net: Any, steps: Any, milestones: Any, plateau: Any) -> list[torch.Tensor]:
        for _ in range(3):
            loss = net(torch.randn(4, 2, 5, 5)).square().mean() + random.random() + np.random.rand()
            steps.zero_grad()
            loss.backward()
            steps.step()
            milestones.step()
            plateau.step(loss.item())
        return [tensor.clone() for tensor in net.state_dict().values()]

    fresh = parts(copy.deepcopy(model))
    first = parts(model)
    train(*first)
    state = {"parts": [part.state_dict() for part in first], "random": checkpoint.random_state()}
    back = round_trip(path, state)
    assert_same(back, state)
    expected = train(*first)
    for part, saved in zip(fresh, back["parts"], strict=True):
        part.load_state_dict(saved)
    checkpoint.set_random_state(back["random"])
    assert_same(train(*fresh), expected)


def test_schedulers(path: Path) -> None:
    steps = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)
    chain = [lr_scheduler.LinearLR(steps), lr_scheduler.CosineAnnealingLR(steps, 5)]
    for scheduler in (
        lr_scheduler.OneCycleLR(steps, 0.1, 10),
        lr_scheduler.CyclicLR(steps, 0.1, 0.2),
        lr_scheduler.LambdaLR(steps, lambda epoch: 0.9**epoch),
        lr_scheduler.SequentialLR(steps, chain, [2]),
    ):
        state = scheduler.state_dict()
        assert_same(round_trip(path, state), state)


def test_random_numbers(path: Path) -> None:
    """The same numbers after going back, also in the middle of numpy's and Python's pairs of normal numbers."""

    def draw() -> list[float]:
        return [random.random(), random.gauss(0, 1), np.random.randn(), np.random.rand(), torch.randn(()).item()]

    draw()
    state = checkpoint.random_state()
    expected = draw()
    checkpoint.set_random_state(round_trip(path, state))
    assert draw() == expected
    checkpoint.set_random_state({**state, "cuda": [torch.zeros(16, dtype=torch.uint8)] * 99})
    assert draw() == expected
    for wrong in ({}, None, {**state, "torch": torch.zeros(3)}, {**state, "python": 3}, {**state, "numpy": {}}):
        with pytest.raises(FileError, match=r"the random state is not understood .*; give what random_state\(\) gave"):
            checkpoint.set_random_state(wrong)  # type: ignore[arg-type]


# --- the file -----------------------------------------------------------------------------------------------------


def test_other_readers_of_safetensors(path: Path) -> None:
    state = {"w": torch.randn(2, 3), "c": torch.ones(2, dtype=torch.complex128), "t": torch.ones(2, 3).T}
    checkpoint.write(path, {**state, "n": np.arange(3)}, kind=KIND)
    with safe_open(path, framework="pt") as file:
        assert sorted(file.keys()) == ["0", "1", "2", "3"]
        assert torch.equal(file.get_tensor("0"), state["w"])
        assert file.get_tensor("1").shape == (32,)
        assert file.get_tensor("2").shape == (6,)
        metadata = file.metadata()
        assert metadata["kind"] == KIND
        assert json.loads(metadata["state"])["dict"][0] == ["w", {"block": 0}]
    checkpoint.write(path, {"no": "tensors"}, kind=KIND)
    with safe_open(path, framework="pt") as file:
        assert not list(file.keys())


def test_same_state_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        checkpoint.write(tmp_path / name, {"x": torch.ones(3), "y": 0.1}, kind=KIND)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_folders_are_made_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "run.ckpt"
    for value in range(2):
        checkpoint.write(str(path), value, kind=KIND)
        assert checkpoint.read(str(path), kind=KIND) == value
    assert list(path.parent.iterdir()) == [path]


def test_bytes_are_safe_before_the_name_moves(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fsync(handle: int) -> None:
        calls.append("folder" if os.path.isdir(f"/proc/self/fd/{handle}") else "file")

    replace = os.replace
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", lambda *names: (calls.append("replace"), replace(*names)))
    checkpoint.write(path, 1, kind=KIND)
    assert calls == ["file", "replace", "folder"]


def test_folder_that_cannot_be_synced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network file systems cannot, and that is no failure; a broken disk is."""

    def failing(number: int) -> Any:
        def fsync(handle: int) -> None:
            if os.path.isdir(f"/proc/self/fd/{handle}"):
                raise OSError(number, os.strerror(number))

        return fsync

    monkeypatch.setattr(os, "fsync", failing(errno.EINVAL))
    assert round_trip(path, 1) == 1
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    with pytest.raises(FileError, match=r"could not be written \(Input/output error\)"):
        checkpoint.write(path, 2, kind=KIND)


def test_threads_do_not_meet(path: Path) -> None:
    errors = []

    def work(value: int) -> None:
        try:
            for _ in range(5):
                checkpoint.write(path, [value, torch.full((5000,), value)], kind=KIND)
                found, tensor = checkpoint.read(path, kind=KIND)
                assert (tensor == found).all()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(value,)) for value in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_a_file_moved_in_while_reading(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was verified is what is read."""
    checkpoint.write(path, {"old": torch.zeros(9)}, kind=KIND)
    verify = checkpoint._verify

    def verify_then_move(*given: Any) -> None:
        verify(*given)
        checkpoint.write(path, "new", kind=KIND)

    monkeypatch.setattr(checkpoint, "_verify", verify_then_move)
    assert_same(checkpoint.read(path, kind=KIND), {"old": torch.zeros(9)})


def test_stale_parts_are_removed(path: Path) -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    gone = done.pid
    stale = path.with_name(f".{path.name}.{gone}.part")
    stay = [
        f".{path.name}.{os.getppid()}.part",  # runs
        f".{path.name}.{10**30}.part",  # no process can have it
        f".{path.name}.0{gone}.part",
        f".{path.name}.{gone}.part.old",
        f".other.ckpt.{gone}.part",
        f".run_ckpt.{gone}.part",
        f"x.{path.name}.{gone}.part",
        f"{path.name}.{gone}.part",
        f".{path.name}.-1.part",
        f".{path.name}..part",
    ]
    for name in [stale.name, *stay]:
        path.with_name(name).write_text("half")
    checkpoint.write(path, 1, kind=KIND)
    assert {file.name for file in path.parent.iterdir()} == {path.name, *stay}
    stale.mkdir()  # not made by us
    checkpoint.write(path, 2, kind=KIND)
    assert stale.is_dir()


def test_own_old_part_is_overwritten(path: Path) -> None:
    """In a container a new run often has the process id of the one that was killed."""
    path.with_name(f".{path.name}.{os.getpid()}.part").write_bytes(b"x" * 10000)
    assert round_trip(path, 1) == 1
    assert list(path.parent.iterdir()) == [path]


# --- refusals: writing --------------------------------------------------------------------------------------------


class Custom:
    pass


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (lambda: 0, "function"),
        (Custom(), "Custom"),
        (Custom, "type"),
        (Pair(1, 2), "Pair"),
        (b"bytes", "bytes"),
        (1j, "complex"),
        ({1}, "set"),
        (defaultdict(int), "collections.defaultdict"),
        (torch.float32, "torch.dtype"),
        (torch.device("cpu"), "torch.device"),
        (torch.Size([1]), "torch.Size"),
        (np.ma.masked_array([1], [True]), "MaskedArray"),
        (np.bytes_(b"a"), "numpy.bytes_"),
        (signal.SIGKILL, "signal.Signals"),
        (nn.UninitializedParameter(), "UninitializedParameter"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unsupported_types(path: Path, value: Any, name: str) -> None:
    state = {"optimizer": {"param_groups": [{"lr": 0.1, "foo": value}]}}
    checkpoint.write(path, "old", kind=KIND)
    not_written(path, state, "optimizer.param_groups[0].foo is of type ", f"{name} and cannot be stored; only tensors")
    assert checkpoint.read(path, kind=KIND) == "old"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.eye(2).to_sparse(), "x[1][7] is a tensor that is sparse, nested or quantized and cannot be stored"),
        (torch.empty(2, device="meta"), "x[1][7] is a tensor that is on the meta device and cannot be stored"),
        (np.array([object()]), "x[1][7] is a numpy array of type object and cannot be stored"),
        (np.zeros(1, [("a", "f4")]), "x[1][7] is a numpy array of type [('a', '<f4')] and cannot be stored"),
        (np.zeros(1, [("a", "U0")])["a"], "x[1][7] is a numpy array of type <U0 and cannot be stored"),
        ({1.5: 0}, "x[1][7] has the key 1.5 of type float, which cannot be stored; only str and int can"),
        ({True: 0}, "x[1][7] has the key True of type bool, which cannot be stored; only str and int can"),
        ({(1, 2): 0}, "x[1][7] has the key (1, 2) of type tuple, which cannot be stored; only str and int can"),
    ],
    ids=["sparse", "meta", "object", "fields", "U0", "float key", "bool key", "tuple key"],
)
def test_unsupported_content(path: Path, value: Any, message: str) -> None:
    not_written(path, {"x": (0, {7: value})}, message)
    assert not path.exists()


def test_unsupported_root(path: Path) -> None:
    not_written(path, object(), "the state is of type object and cannot be stored")


def test_quantized(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensor = torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8)
    not_written(path, [tensor], "[0] is a tensor that is sparse, nested or quantized")


def test_state_that_contains_itself(path: Path) -> None:
    state: dict[str, Any] = {}
    state["me"] = [state]
    not_written(path, state, "me[0].me[0].me[0].me[0] is nested more than 100 levels deep, or contains itself")
    deep: Any = 0
    for _ in range(50):
        deep = {"a": (deep,)}
    assert_same(round_trip(path, deep), deep)
    not_written(path, [deep], "is nested more than 100 levels deep")


def test_header_that_others_could_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "_HEADER", 10_000)
    not_written(path, [0.1] * 5000, "without its tensors and arrays, more than the 10000 that fit; hold long lists")
    assert round_trip(path, np.full(5000, 0.1)).shape == (5000,)


def test_path_that_cannot_be_written(tmp_path: Path) -> None:
    not_written(tmp_path, 1, f"{tmp_path} is a folder; give the path of a file to write")
    file = tmp_path / "file"
    file.write_text("x")
    not_written(file / "run.ckpt", 1, f"{file / 'run.ckpt'} could not be written (", "give another path")
    not_written(tmp_path / ("n" * 254), 1, "could not be written (File name too long)")


def test_full_disk(path: Path) -> None:
    """A limit on the size of files stands in for the disk: the system refuses the bytes in the middle."""
    checkpoint.write(path, "old", kind=KIND)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        not_written(path, torch.zeros(100_000), f"{path} could not be written (File too large); check the free space")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert checkpoint.read(path, kind=KIND) == "old"


@pytest.mark.parametrize("error", [PermissionError(errno.EACCES, "Permission denied"), KeyboardInterrupt()])
def test_failure_at_the_last_step(path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def replace(*_: Any) -> None:
        assert len(list(path.parent.iterdir())) == 2
        raise error

    checkpoint.write(path, "old", kind=KIND)
    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises((FileError, KeyboardInterrupt)) as caught:
        checkpoint.write(path, "new", kind=KIND)
    assert isinstance(caught.value, KeyboardInterrupt) or "(Permission denied); check" in str(caught.value)
    assert list(path.parent.iterdir()) == [path]
    assert checkpoint.read(path, kind=KIND) == "old"


# --- refusals: reading --------------------------------------------------------------------------------------------

FOREIGN = "is not a file of meristem.io.checkpoint, or is cut short; give one that it wrote"
DAMAGED = "is damaged or cut short (its content does not fit its digest); use an earlier checkpoint"


def test_missing_and_folder(path: Path) -> None:
    refused(path, "does not exist; give a file that was written as 'test-1'")
    refused(path.parent, "is not a file; give a file that was written as 'test-1'")
    os.mkfifo(path)
    refused(path, "is not a file")  # and does not wait for a writer


def test_unreadable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    checkpoint.write(path, 1, kind=KIND)
    monkeypatch.setattr(Path, "open", denied)
    refused(path, "could not be read (Permission denied); check its permissions")


def test_other_kind(path: Path) -> None:
    checkpoint.write(path, 1, kind="test-2")
    refused(path, "holds 'test-2', expected 'test-1'; give a file of that kind")


def test_foreign(path: Path) -> None:
    from safetensors.torch import save_file

    for content in (b"", b"x", b"hello " * 100, bytes(1000)):
        path.write_bytes(content)
        refused(path, FOREIGN)
    save_file({"w": torch.ones(3)}, path, metadata={"kind": KIND})
    refused(path, FOREIGN)
    torch.save({"w": torch.ones(3)}, path)
    refused(path, FOREIGN)


class Malicious:
    """A pickle of this makes a file when it is loaded."""

    def __init__(self, target: str) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return (open, (self.target, "w"))


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_pickles_are_not_executed(path: Path) -> None:
    target = path.with_name("executed")
    evil = pickle.dumps(Malicious(str(target)))
    path.write_bytes(evil)
    refused(path, FOREIGN)
    torch.save(Malicious(str(target)), path)
    refused(path, FOREIGN)
    checkpoint.write(path, np.frombuffer(evil, np.uint8), kind=KIND)  # stored like any other bytes
    checkpoint.read(path, kind=KIND)
    assert not target.exists()
    pickle.loads(evil).close()
    assert target.exists()  # it would have


@pytest.fixture
def content(path: Path) -> bytes:
    state = {"step": 3, "w": torch.randn(5, 3), "moments": (np.arange(4.0), [1.5, math.nan]), "name": "x"}
    checkpoint.write(path, state, kind=KIND)
    return path.read_bytes()


def test_cuts_are_refused(path: Path, content: bytes) -> None:
    for length in [*range(0, 150), *range(150, len(content), 7), len(content) - 1]:
        path.write_bytes(content[:length])
        refused(path, FOREIGN if length < 8 + len(checkpoint._START) else DAMAGED)
    path.write_bytes(content + b"\0")
    refused(path, DAMAGED)
    path.write_bytes(content)
    assert checkpoint.read(path, kind=KIND)["step"] == 3


def test_every_flipped_byte_is_refused(path: Path, content: bytes) -> None:
    """One bit at every offset, and the digest's letters in upper case."""
    begin = 8 + len(checkpoint._START)
    flips = [(offset, 1 << offset % 8) for offset in range(len(content))]
    for offset, flip in [*flips, *((offset, 0x20) for offset in range(begin, begin + 64))]:
        damaged = bytearray(content)
        damaged[offset] ^= flip
        path.write_bytes(damaged)
        refused(path)


def forge(path: Path, content: bytes, old: bytes, new: bytes) -> None:
    """Change the header and make length and digest fit again, as somebody could on purpose."""
    (length,) = struct.unpack("<Q", content[:8])
    header, data = content[8 : 8 + length], content[8 + length :]
    assert header.count(old) == 1
    header = header.replace(old, new)
    begin = len(checkpoint._START)
    header = header[:begin] + checkpoint._NO_DIGEST + header[begin + 64 :]
    whole = struct.pack("<Q", len(header)) + header + data
    digest = hashlib.sha256(whole).hexdigest().encode()
    path.write_bytes(whole[: 8 + begin] + digest + whole[8 + begin + 64 :])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"data_offsets":[0,60]', b'"data_offsets":[0,6000]'),
        (b'"data_offsets":[0,60]', b'"data_offsets":[-4,56]'),
        (b'"data_offsets":[0,60]', b'"data_offsets":[]'),
        (b'\\"shape\\":[5,3]', b'\\"shape\\":[500000000000,3]'),
        (b'\\"shape\\":[5,3]', b'\\"shape\\":[-5,-3]'),
        (b'\\"shape\\":[5,3]', b'\\"shape\\":[5.0,3]'),
        (b'\\"stride\\":[3,1]', b'\\"stride\\":[300000000,1]'),
        (b'\\"stride\\":[3,1]', b'\\"stride\\":[0,0]'),
        (b'\\"stride\\":[3,1]', b'\\"stride\\":[1]'),
        (b'\\"tensor\\":\\"float32\\"', b'\\"tensor\\":\\"load\\"'),
        (b'\\"tensor\\":\\"float32\\"', b'\\"tensor\\":\\"no\\"'),
        (b'\\"array\\":\\"<f8\\"', b'\\"array\\":\\"|O\\"'),
        (b'\\"array\\":\\"<f8\\"', b'\\"array\\":\\"f4,f4\\"'),
        (b'\\"array\\":\\"<f8\\"', b'\\"array\\":8'),
        (b'{\\"block\\":0}', b'{\\"block\\":-1}'),
        (b'{\\"block\\":0}', b'{\\"block\\":9}'),
        (b'{\\"block\\":0}', b'{\\"code\\":\\"1\\"}'),
        (b'{\\"block\\":0}', b"{}"),
        (b'{\\"block\\":0}', b'{\\"float\\":\\"00\\"}'),
        (b'{\\"block\\":0}', b'{\\"text\\":5}'),
        (b'{\\"block\\":0}', b'{\\"dict\\":[[[],1]]}'),
        (b'{\\"block\\":0}', b'{\\"scalar\\":[\\"|O\\",\\"0000000000000000\\"]}'),
        (b'{\\"block\\":0}', b"[" * 50_000 + b"]" * 50_000),
        (b'"kind"', b'"kond"'),
        (b'"blocks"', b'"blacks"'),
        (b'"__metadata__":{"meristem":"1","digest":"', b'"__metadata__":{"meristem":"1","digest":"'),
    ],
    ids=range(26),
)
def test_forged_content_is_refused(path: Path, content: bytes, old: bytes, new: bytes) -> None:
    forge(path, content, old, new)
    if old == new:  # the forging itself makes no error
        assert checkpoint.read(path, kind=KIND)["step"] == 3
    else:
        refused(path, "is not understood (", "; use an earlier checkpoint")


def test_forged_length(path: Path, content: bytes) -> None:
    whole = bytearray(content)
    whole[:8] = b"\xff" * 8
    begin = 8 + len(checkpoint._START)
    whole[begin : begin + 64] = checkpoint._NO_DIGEST
    whole[begin : begin + 64] = hashlib.sha256(whole).hexdigest().encode()
    path.write_bytes(whole)
    refused(path, "is not understood (ValueError: the header is longer than the file)")


# --- kill -9 ------------------------------------------------------------------------------------------------------

# Importing torch takes seconds, so one process imports it and makes a writer for every line it is sent.
WRITERS = """
import os, sys
import torch
from meristem.io import checkpoint

torch.set_num_threads(1)
path, kind = sys.argv[1:]
for line in sys.stdin:
    child = os.fork()
    if not child:
        count = int(line)
        while True:
            count += 1
            state = {"count": count, "tensors": [torch.full((size,), count) for size in (1, 1000, 300_000)]}
            checkpoint.write(path, state, kind=kind)
    print(child, flush=True)
    os.waitpid(child, 0)
    print("gone", flush=True)
"""


def test_kill_9(path: Path) -> None:
    """Whenever the writer is killed, the file is whole; what it left is removed by the next one."""
    rng = random.Random(0)
    checkpoint.write(path, {"count": 0, "tensors": []}, kind=KIND)
    count, parts = 0, 0
    with subprocess.Popen(
        [sys.executable, "-c", WRITERS, str(path), KIND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writers:
        assert writers.stdin
        assert writers.stdout
        for _ in range(15):
            writers.stdin.write(f"{count}\n")
            writers.stdin.flush()
            child = int(writers.stdout.readline())
            time.sleep(rng.uniform(0.02, 0.15))
            os.kill(child, signal.SIGKILL)
            assert writers.stdout.readline() == "gone\n"
            state = checkpoint.read(path, kind=KIND)
            assert state["count"] >= count
            assert all((tensor == state["count"]).all() for tensor in state["tensors"])
            count = state["count"]
            parts += len(list(path.parent.glob(".*.part")))
        writers.stdin.close()
    assert count > 0
    assert parts > 0  # some were killed in the middle
    checkpoint.write(path, "end", kind=KIND)
    assert list(path.parent.iterdir()) == [path]
