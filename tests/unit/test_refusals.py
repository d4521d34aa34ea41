"""What cannot work is refused at the start, in one sentence that says what to do."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from torch import Tensor, nn, optim
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

import meristem

X = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))


def layers(first: nn.Module | None = None) -> nn.Sequential:
    return nn.Sequential(first or nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))


class Running(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(1)


def grower(model: nn.Module, x: Tensor = X) -> meristem.Grower:
    return meristem.Grower(model, optim.SGD(model.parameters(), lr=0.1), x, epochs=2, budget="60%")


def not_a_number() -> nn.Module:
    model = layers()
    with torch.no_grad():
        model[0].weight[0, 0] = float("nan")  # type: ignore[union-attr]
    return model


def old_norm(function: str) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates it; users still have such models
        return layers(getattr(nn.utils, function)(nn.Linear(5, 8)))


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.Sequential(nn.Linear(5, 8), torch.jit.script(nn.Sequential(nn.ReLU())), nn.Linear(8, 2))


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "weights that are no numbers": (lambda: grower(not_a_number()), "0.weight holds NaN before training"),
    "no weights at all": (lambda: grower(layers().to("meta"), X), "0.weight is on the meta device"),
    "old weight norm": (lambda: grower(old_norm("weight_norm")), "use torch.nn.utils.parametrizations.weight_norm"),
    "old spectral norm": (lambda: grower(old_norm("spectral_norm")), "use torch.nn.utils.parametrizations.spectral"),
    "a scripted part": (lambda: meristem.trace(scripted(), X), "1 is a ScriptModule, which cannot be resized"),
    "whole numbers": (lambda: meristem.trace(layers(), X.long()), "they are whole numbers: pass x.float"),
    "nothing to grow": (
        lambda: grower(layers(nn.Sequential(nn.Linear(5, 8), Running()))),
        "nothing in this model can grow, mostly because the order of its positions matters in cumsum",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_at_the_start(name: str) -> None:
    start, message = REFUSED[name]
    with pytest.raises(meristem.MeristemError, match=message):
        start()


# --- models that other parts of torch have changed ---


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A process group of this process only."""
    store = tmp_path_factory.mktemp("group") / "store"
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def wrapped(**settings: Any) -> nn.Module:
    return FullyShardedDataParallel(layers(), device_id=torch.device("cpu"), **settings)


def partly_wrapped() -> nn.Module:
    return nn.Sequential(wrapped(), nn.Linear(2, 2))


def sharded() -> nn.Module:
    model = layers()
    fully_shard(model)
    return model


SPREAD: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "wrapped": (wrapped, "the model"),
    "wrapped with its own parameters": (lambda: wrapped(use_orig_params=True), "the model"),
    "wrapped in part": (partly_wrapped, "0"),
    "sharded": (sharded, "0.weight"),
}


@pytest.mark.parametrize("name", SPREAD)
@pytest.mark.usefixtures("alone")
@pytest.mark.filterwarnings("ignore")  # torch's own words about FSDP without an accelerator
def test_a_model_that_is_spread_over_ranks(name: str) -> None:
    make, where = SPREAD[name]
    for start in (grower, lambda model: meristem.trace(model, X)):
        with pytest.raises(meristem.MeristemError, match=f"{where} is sharded already.*shard=a function"):
            start(make())


@pytest.mark.filterwarnings("ignore")  # torch will move its quantisation to another package
def test_a_model_that_is_prepared_for_quantisation() -> None:
    model: Any = layers().train()
    model.qconfig = torch.ao.quantization.get_default_qat_qconfig("x86")
    prepared = torch.ao.quantization.prepare_qat(model)
    prepared(X)
    with pytest.raises(
        meristem.MeristemError, match=r"0.weight_fake_quant quantises .* call prepare_qat on what export"
    ):
        grower(prepared)
    space = meristem.trace(prepared, X)
    assert "does not know the operation _fused_moving_avg_obs_fq_helper in 0.weight_fake_quant" in str(space)
    small = grower(layers())
    small.step()
    exported: Any = small.export()
    exported.qconfig = torch.ao.quantization.get_default_qat_qconfig("x86")
    assert torch.ao.quantization.prepare_qat(exported.train())(X).shape == (4, 2)


def test_pixels_that_are_whole_numbers() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 2))
    with pytest.raises(meristem.MeristemError, match=r"they are whole numbers: pass x.float\(\)"):
        grower(model, torch.zeros(1, 3, 8, 8, dtype=torch.uint8))


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.other = nn.Linear(5, 8), nn.Linear(8, 2), nn.Linear(8, 3)

    def forward(self, x: Tensor, which: str = "head") -> Tensor:
        return getattr(self, which)(torch.relu(self.body(x)))  # type: ignore[no-any-return]


def test_a_part_that_the_example_never_reaches_is_told_of() -> None:
    space = meristem.trace(TwoHeads(), X)
    assert [(pin.units, pin.reason) for pin in space.pinned if pin.name == "other"] == [
        (3, "the example inputs never reach it")
    ]
    assert "never reach other: it stays as it is, and will not fit" in " ".join(space.notes)


def test_padded_encoders_with_an_odd_number_of_heads_evaluate() -> None:
    """torch's encoder decides when it is made whether its layers take nested tensors; with odd heads they do not."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 8, dropout=0.0, batch_first=True)

    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.encoder = nn.Linear(5, 16), nn.TransformerEncoder(layer, 1)
            self.head = nn.Linear(16, 2)

        def forward(self, x: Tensor, padded: Tensor) -> Tensor:
            return self.head(self.encoder(self.embed(x), src_key_padding_mask=padded)[:, 0])

    inputs = (torch.randn(2, 4, 5), torch.tensor([[False, False, False, True], [False, False, True, True]]))
    model = Padded().eval()
    space = meristem.trace(model, inputs)
    heads = next(name for name, group in space.groups.items() if group.kind == "head")
    live = meristem.Live(model, space)
    live.apply(live.plan({heads: [0, 1, 3]}))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors are a prototype, torch says
        without_gradients = model(*inputs)
    assert torch.allclose(without_gradients, model(*inputs), atol=1e-5)


COMPILES_LATE = """
import sys
import torch
from torch import nn
import meristem

compiled = []

def backend(graph, inputs):
    compiled.append(graph)
    return graph

class Late(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.function = nn.Linear(5, 8), nn.Linear(8, 2), None

    def forward(self, x):
        if self.function is None:  # as torchvision does it where its own operations are missing
            self.function = torch.compile(lambda x: torch.relu(x) * 2, backend=backend)
        return self.two(self.function(self.one(x)))

assert "torch._dynamo" not in sys.modules
before = torch.compile
assert meristem.trace(Late(), torch.randn(2, 5)).full == {"one": 8}
assert not compiled
assert torch.compile is before
Late()(torch.randn(2, 5))
assert compiled
"""


def test_a_function_that_is_compiled_in_the_first_trace_runs_as_it_is_written(tmp_path: Path) -> None:
    """Torch's compiler is loaded by the model then; a process in which it is not loaded yet is needed to see it."""
    program = tmp_path / "late.py"
    program.write_text(COMPILES_LATE)
    subprocess.run([sys.executable, str(program)], check=True, timeout=120)


def test_a_compiled_function_runs_as_it_is_written_while_tracing() -> None:
    """Otherwise torch compiles the rules of the tracer."""
    compiled: list[str] = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(str(graph))
        return graph

    function = torch.compile(lambda x: torch.relu(x) * 2, backend=backend)

    class Compiled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(5, 8), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.two(function(self.one(x)))

    assert meristem.trace(Compiled(), X).full == {"one": 8}
    assert not compiled
