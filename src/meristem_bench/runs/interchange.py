"""A network in the formats of other programs: written, read back by their own readers, compared with the network."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from meristem.errors import DataError, MeristemError
from meristem_bench.runs.data import Data
from meristem_bench.runs.run import Run

ONNX, TORCH_EXPORT = "model.onnx", "model.pt2"
_TOLERANCE = 1e-4  # of the largest output: the order of sums differs from program to program, nothing else may
_FOLLOWED = 2  # samples of the call that is followed: torch.export would take a single one for a constant

Call = tuple[Any, ...]
Reader = Callable[[Call], list[Tensor]]


@dataclass(frozen=True)
class Written:
    """A file, and what it was compared with."""

    path: Path
    reader: str
    samples: int  # of the largest call that was compared
    any_batch: bool  # whether it takes batches of any size, or only of a single sample
    difference: float  # the largest one, as a share of the largest output

    def __str__(self) -> str:
        only = "" if self.any_batch else "; it takes one sample at a time, because the model fixes the size of a batch"
        return (
            f"{self.path}: {self.reader} computes the same on {self.samples} test "
            f"sample{'s' * (self.samples > 1)}, to {self.difference:.0e} of the largest output{only}"
        )


class Interchange:
    """Writes the network of a run, in evaluation mode and on the CPU, as what is called with samples of its test set.

    Where a run carries a state, the network is called with it and returns the next one.
    """

    def __init__(self, run: Run, data: Data, network: nn.Module) -> None:
        self._network = network.to("cpu", memory_format=torch.contiguous_format).eval()  # type: ignore[call-overload]
        try:
            self._samples = next(iter(data.evaluate("test", run.batch)))[0]
        except (ValueError, OSError) as error:
            raise DataError(f"{run.name}: {error}") from None
        self._carries_state = bool(run.data.unroll)
        with torch.no_grad(), _quiet():
            self._program, self._any_batch = self._follow()

    def write_torch_export(self, path: Path) -> Written:
        """As torch.export writes programs; ``torch.export.load(path).module()`` is called like the network."""
        with _quiet():
            torch.export.save(self._program, path)
            module = torch.export.load(path).module()
        return self._compared(path, "torch.export", lambda call: tree_leaves(module(*call)))

    def write_onnx(self, path: Path) -> Written:
        """As ONNX; ``require_onnx`` says whether that can be done."""
        import onnxruntime

        with torch.no_grad(), _quiet():
            program = torch.onnx.export(self._program, dynamo=True, verbose=False)
            assert program is not None
            program.save(path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        names = [each.name for each in session.get_inputs()]

        def read(call: Call) -> list[Tensor]:
            values = [value.numpy() for value in tree_leaves(call)]
            return [torch.from_numpy(out) for out in session.run(None, dict(zip(names, values, strict=True)))]

        return self._compared(path, f"ONNX Runtime {onnxruntime.__version__}", read)

    # --- parts ---

    def _call(self, samples: int) -> Call:
        """What the network is called with for so many samples; a state is one that it has returned itself."""
        inputs = self._samples[torch.arange(samples) % len(self._samples)]  # there may be but one
        return (inputs, self._network(inputs)[1]) if self._carries_state else (inputs,)

    def _follow(self) -> tuple[torch.export.ExportedProgram, bool]:
        """The network as a program, for batches of any size, or, if its code fixes that, of one sample."""
        batch = torch.export.Dim("batch", min=1)

        def sizes(few: Tensor, more: Tensor) -> dict[int, Any]:
            return {axis: batch for axis, (a, b) in enumerate(zip(few.shape, more.shape, strict=True)) if a != b}

        call = self._call(_FOLLOWED)
        dynamic = tree_map(sizes, call, self._call(_FOLLOWED + 1))
        try:
            return torch.export.export(self._network, call, dynamic_shapes=dynamic), True
        except Exception:  # of many kinds, by what the model's code does
            try:
                return torch.export.export(self._network, self._call(1)), False
            except Exception as error:
                reason = str(error).strip().partition("\n")[0]
                raise MeristemError(
                    f"torch.export cannot follow {type(self._network).__name__} ({reason}); export without --onnx "
                    f"and --torch-export and load the network into its own class"
                ) from None

    @torch.no_grad()
    def _compared(self, path: Path, reader: str, read: Reader) -> Written:
        """Refuse a file that computes something else than the network, and remove it."""
        checked = {1, len(self._samples)} if self._any_batch else {1}
        worst = max(difference(read(call), tree_leaves(self._network(*call))) for call in map(self._call, checked))
        if not worst <= _TOLERANCE:
            path.unlink()
            raise MeristemError(
                f"{reader} computes something else than the network (the largest difference is {worst:.1e} of the "
                f"largest output, more than {_TOLERANCE:.0e}), so {path.name} was not kept; the network itself is in "
                f"{path.parent}"
            )
        return Written(path, reader, max(checked), self._any_batch, worst)


def difference(got: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference between two lists of outputs, as a share of the largest one that is expected."""
    if [each.shape for each in got] != [each.shape for each in expected]:
        return float("inf")
    return max(
        float((ours.double() - theirs.double()).abs().max() / theirs.double().abs().max().clamp(min=1e-12))
        for ours, theirs in zip(got, expected, strict=True)
    )


def require_onnx() -> None:
    """Refuse before anything is written if what ONNX needs is not installed."""
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]
    if missing:
        raise MeristemError(f"--onnx needs {' and '.join(missing)}: pip install 'meristem[onnx]'")


@contextmanager
def _quiet() -> Iterator[None]:
    """What the exporters say of their own inner workings is not for the user."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
