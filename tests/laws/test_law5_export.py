"""Law 5. Export equals the live model in eval mode, has the original classes, and loads where meristem is not.

Why: what a user takes away must be theirs. Gates are folded into the weights that read the units, so nothing of ours
runs in the exported model; its classes are the user's, its file needs neither a trace nor, when pickled, this package.
A block that is absent leaves nothing behind but an identity in its place, or nothing at all.
"""

from __future__ import annotations

import pickle
import pickletools
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import meristem
from deep import ALL_NETS, DEEP, DROPPED
from helpers import assert_all_near, half_without_some_blocks, run, with_gates
from meristem import Live
from meristem.tracing.model_copy import tensors_in

TESTS = Path(__file__).parents[1]
nets = pytest.mark.parametrize("name", ALL_NETS)


def gated(name: str, space: meristem.Space) -> tuple[Live, meristem.Gates, tuple[Tensor, ...]]:
    """Half the units, some blocks absent."""
    return with_gates(name, space, half_without_some_blocks(space))


@nets
def test_export_is_the_live_model(name: str, space_of) -> None:
    live, gates, inputs = gated(name, space_of(name))
    with torch.no_grad():
        expected = run(live.model, inputs)
        plain = meristem.export(live, gates)
        assert_all_near(run(plain, inputs), expected, 1e-5)
        assert_all_near(run(live.model, inputs), expected, 0.0, "the live model after export, output")
        gates.detach()
        if live.space.slots:
            assert any(not torch.equal(a, b) for a, b in zip(run(live.model, inputs), expected, strict=True))
        without = meristem.export(live)
        assert_all_near(run(without, inputs), run(live.model, inputs), 0.0)


@nets
def test_export_is_plain(name: str, space_of) -> None:
    """Every module has its original type, no hook is left, nothing is shared with the live model, and nothing is left
    of an absent block."""
    live, gates, _ = gated(name, space_of(name))
    original, _ = ALL_NETS[name].build()
    absent = live.tree.absent
    assert bool(absent) == (name in DEEP)

    def outside_absent_blocks(names: Iterable[str]) -> list[str]:
        return [name for name in names if not any(name == block or name.startswith(f"{block}.") for block in absent)]

    plain = meristem.export(live, gates)
    types = {path: type(module) for path, module in original.named_modules()}
    identities = {} if name in DROPPED else dict.fromkeys(absent, nn.Identity)
    assert {path: type(module) for path, module in plain.named_modules()} == {
        **{path: types[path] for path in outside_absent_blocks(types)},
        **identities,
    }
    for path, module in plain.named_modules():
        assert not module._forward_hooks, path
        assert not module._forward_pre_hooks, path
        assert not any("meristem" in type(value).__module__ for value in vars(module).values()), path
        kind = type(module).__module__
        assert "meristem" not in kind or kind.startswith("meristem_bench.models."), path
    assert list(plain.state_dict()) == outside_absent_blocks(original.state_dict())
    assert all(tensor.numel() for tensor in plain.state_dict().values())
    mine = {id(tensor) for tensor in [*live.model.parameters(), *live.model.buffers()]}
    for parameter in [*plain.parameters(), *plain.buffers()]:
        assert id(parameter) not in mine
        assert parameter.grad is None
    names = [key for key, _ in original.named_parameters()]
    assert [key for key, _ in plain.named_parameters()] == outside_absent_blocks(names)


@pytest.mark.parametrize("name", DEEP)
def test_saved_and_loaded(name: str, space_of, tmp_path: Path) -> None:
    """Into a fresh model of the full size; and into a model that has lost its blocks already, not at all."""
    live, gates, inputs = gated(name, space_of(name))
    meristem.save(live, tmp_path / "net", gates)
    fresh = meristem.load(tmp_path / "net", DEEP[name].build(seed=3)[0].eval())
    assert [path for path, _ in fresh.named_modules()] == [path for path, _ in live.model.named_modules()]
    with torch.no_grad():
        assert_all_near(run(fresh, inputs), run(live.model, inputs), 1e-5)
    with pytest.raises(meristem.MeristemError, match="does not fit"):
        meristem.load(tmp_path / "net", fresh)


@pytest.mark.parametrize("name", DEEP)
def test_a_pickle_of_it_needs_nothing_of_ours(name: str, space_of) -> None:
    """But for the nets themselves, some of which are in meristem_bench.models."""
    live, gates, _ = gated(name, space_of(name))
    needed = {module for module, _ in globals_in(pickle.dumps(meristem.export(live, gates)))}
    assert "torch.nn.modules.linear" in needed
    assert not [module for module in needed if module.startswith("meristem") and "meristem_bench.models" not in module]


def globals_in(pickled: bytes) -> Iterator[tuple[str, str]]:
    """Everything a pickle would import."""
    strings: list[str] = []
    for opcode, argument, _ in pickletools.genops(pickled):
        if isinstance(argument, str) and "UNICODE" in opcode.name:
            strings.append(argument)
        elif opcode.name == "STACK_GLOBAL":
            yield strings[-2], strings[-1]
        elif opcode.name == "GLOBAL":
            module, _, name = argument.partition(" ")
            yield module, name


# --- another process ----------------------------------------------------------------------------------------------

# Importing torch takes seconds, so one process does both: first without meristem, then with it.
ANOTHER_PROCESS = """
import sys
sys.modules["meristem"] = None
from pathlib import Path
import torch
from deep import ALL_NETS
torch.set_num_threads(1)
folder = Path(sys.argv[1])

def run(model, name, file):
    with torch.no_grad():
        torch.save(model(*torch.load(folder / name / "inputs.pt")), folder / name / file)

for name in ALL_NETS:
    run(torch.load(folder / name / "model.pt", weights_only=False), name, "unpickled.pt")
try:
    import meristem
except ImportError:
    pass
else:
    raise AssertionError("meristem was there")
assert not [name for name in sys.modules if name.startswith("meristem.")]

del sys.modules["meristem"]
import meristem
from meristem.tracing.labelled_run import LabelledRun

def never(*_):
    raise AssertionError("the model was traced")
LabelledRun.execute = never

for name, net in ALL_NETS.items():
    model, _ = net.build(seed=1)
    loaded = meristem.load(folder / name, model.eval())
    assert loaded is model
    run(model, name, "loaded.pt")
"""


def test_another_process_computes_the_same(space_of, tmp_path: Path) -> None:
    """Every net, at half size with gates: unpickled where meristem cannot be imported; saved, and loaded untraced.

    One test for all nets: in a test each, every worker of the suite would start a process of its own.
    """
    for name in ALL_NETS:
        live, gates, inputs = gated(name, space_of(name))
        meristem.save(live, tmp_path / name, gates)
        torch.save(inputs, tmp_path / name / "inputs.pt")
        torch.save(meristem.export(live, gates), tmp_path / name / "model.pt")
        with torch.no_grad():
            torch.save(run(live.model, inputs), tmp_path / name / "expected.pt")
    script = [sys.executable, "-c", ANOTHER_PROCESS, str(tmp_path)]
    ended = subprocess.run(script, cwd=TESTS, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    for name in ALL_NETS:
        expected = torch.load(tmp_path / name / "expected.pt")
        for file in ("unpickled.pt", "loaded.pt"):
            assert_all_near(tensors_in(torch.load(tmp_path / name / file)), expected, 1e-5, f"{name}, {file}, output")
