"""Law 5. Export equals the live model in eval mode, has the original classes, and loads where meristem is not.

Why: what a user takes away must be theirs. Gates are folded into the weights that read the units, so nothing of ours
runs in the exported model; its classes are the user's, its file needs neither a trace nor, when pickled, this package.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import meristem
from helpers import assert_all_near, half, run, with_gates
from meristem import Live
from zoo import ZOO

TESTS = Path(__file__).parents[1]
nets = pytest.mark.parametrize("name", ZOO)


def gated(name: str, space: meristem.Space) -> tuple[Live, meristem.Gates, tuple[Tensor, ...]]:
    return with_gates(name, space, half(space))


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
    """Every module has its original type, no hook is left, and nothing is shared with the live model."""
    live, gates, _ = gated(name, space_of(name))
    original, _ = ZOO[name].build()
    plain = meristem.export(live, gates)
    assert {path: type(module) for path, module in plain.named_modules()} == {
        path: type(module) for path, module in original.named_modules()
    }
    for path, module in plain.named_modules():
        assert not module._forward_hooks, path
        assert not module._forward_pre_hooks, path
        assert not any("meristem" in type(value).__module__ for value in vars(module).values()), path
    assert list(plain.state_dict()) == list(original.state_dict())
    mine = {id(tensor) for tensor in [*live.model.parameters(), *live.model.buffers()]}
    for parameter in [*plain.parameters(), *plain.buffers()]:
        assert id(parameter) not in mine
        assert parameter.grad is None
    assert [name for name, _ in plain.named_parameters()] == [name for name, _ in original.named_parameters()]


# --- other processes --------------------------------------------------------------------------------------------

LOAD = """
import sys
from pathlib import Path
import torch
import meristem
from meristem.tracing.labelled_run import Run
from zoo import ZOO
torch.set_num_threads(1)

def never(*_):
    raise AssertionError("the model was traced")
Run.execute = never

folder = Path(sys.argv[1])
for name, net in ZOO.items():
    model, inputs = net.build(seed=1)
    loaded = meristem.load(folder / name, model.eval())
    assert loaded is model
    with torch.no_grad():
        torch.save(model(*torch.load(folder / name / "inputs.pt")), folder / name / "outputs.pt")
"""

UNPICKLE = """
import sys
sys.modules["meristem"] = None
from pathlib import Path
import torch
from zoo import ZOO
torch.set_num_threads(1)
folder = Path(sys.argv[1])
for name in ZOO:
    model = torch.load(folder / name / "model.pt", weights_only=False)
    with torch.no_grad():
        torch.save(model(*torch.load(folder / name / "inputs.pt")), folder / name / "unpickled.pt")
try:
    import meristem
except ImportError:
    pass
else:
    raise AssertionError("meristem was there")
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, space_of) -> Path:
    """Every net of the zoo, saved and pickled at half size with gates; then run by two other processes."""
    folder = tmp_path_factory.mktemp("zoo")
    for name in ZOO:
        live, gates, inputs = gated(name, space_of(name))
        meristem.save(live, folder / name, gates)
        torch.save(inputs, folder / name / "inputs.pt")
        torch.save(meristem.export(live, gates), folder / name / "model.pt")
        with torch.no_grad():
            torch.save(run(live.model, inputs), folder / name / "expected.pt")
    for script in (LOAD, UNPICKLE):
        done = subprocess.run(
            [sys.executable, "-c", script, str(folder)], cwd=TESTS, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    return folder


@nets
@pytest.mark.parametrize("file", ["outputs.pt", "unpickled.pt"], ids=["saved and loaded", "pickled, without meristem"])
def test_another_process_computes_the_same(name: str, file: str, saved: Path) -> None:
    from meristem.tracing.model_copy import tensors_in

    expected = torch.load(saved / name / "expected.pt")
    assert_all_near(tensors_in(torch.load(saved / name / file)), expected, 1e-5)
