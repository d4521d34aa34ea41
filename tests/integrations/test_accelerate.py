"""Growing in a loop with accelerate: ``save_state`` and ``load_state`` go on while the network grows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import meristem
from meristem.errors import FileError
from meristem_bench.data.digits import digits
from meristem_bench.models.resnet_cifar import ResNetCifar
from other_libraries import example, library
from two_ranks import on_two_ranks

library("accelerate")
from accelerate import Accelerator  # noqa: E402
from accelerate.state import AcceleratorState  # noqa: E402

from meristem.integrations.accelerate import prepare_grower  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # what accelerate warns of is not ours
accelerate_loop = example("accelerate_loop")

EPOCHS = 4


@pytest.fixture(autouse=True)
def a_new_program() -> Iterator[None]:
    """A process has one state of accelerate, with one precision, from its first Accelerator on."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


IMAGES, LABELS = (tensor[:64] for tensor in digits()["train"])


class Loop:
    """A program that is started anew."""

    def __init__(self, **settings: Any) -> None:
        torch.manual_seed(0)
        self.accelerator = Accelerator(cpu=True, **settings)
        model = ResNetCifar(8, classes=10, channels=1, width=8)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
        loader = DataLoader(TensorDataset(IMAGES, LABELS), 16, shuffle=True)
        prepared = self.accelerator.prepare(model, optimizer, loader, scheduler)
        self.model, self.optimizer, self.loader, self.scheduler = prepared
        self.grower = prepare_grower(
            self.accelerator,
            self.model,
            self.optimizer,
            IMAGES[:1],
            budget="40%",
            epochs=EPOCHS,
            method="default:peak=1.2",
        )

    def epoch(self) -> list[float]:
        losses = []
        for images, labels in self.loader:
            with self.accelerator.accumulate(self.model):
                loss = F.cross_entropy(self.model(images), labels)
                self.accelerator.backward(loss)
                if self.accelerator.sync_gradients:
                    self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad()
                losses.append(float(loss.detach()))
        self.scheduler.step()
        self.grower.step(loss=losses[-1])
        return losses


@pytest.mark.parametrize(
    "settings", [{}, {"mixed_precision": "bf16", "gradient_accumulation_steps": 2}], ids=["plain", "bf16"]
)
def test_load_state_goes_on(settings: dict[str, Any], tmp_path: Path) -> None:
    loop = Loop(**settings)
    loop.epoch()
    for epoch in range(1, EPOCHS - 1):
        loop.accelerator.save_state(str(tmp_path / str(epoch)))
        loop.epoch()
    expected = loop.epoch()
    assert loop.grower.finished
    assert loop.grower.records[-1]["params_frac"] <= 0.4
    for epoch in range(1, EPOCHS - 1):
        again = Loop(**settings)
        again.accelerator.load_state(str(tmp_path / str(epoch)))
        losses = [again.epoch() for _ in range(epoch, EPOCHS)]
        assert losses[-1] == expected
        assert again.grower.widths == loop.grower.widths


def test_a_folder_without_a_grower(tmp_path: Path) -> None:
    loop = Loop()
    loop.accelerator.save_state(str(tmp_path))
    (tmp_path / "meristem-grower.pt").unlink()
    with pytest.raises(FileError, match=r"has no meristem-grower.pt: it was written without a grower"):
        Loop().accelerator.load_state(str(tmp_path))


def test_the_example(tmp_path: Path) -> None:
    arguments = {"depth": 8, "width": 8, "folder": tmp_path}
    small = accelerate_loop.main(epochs=2, **arguments)
    assert isinstance(small, ResNetCifar)
    again = accelerate_loop.main(epochs=2, resume=True, **arguments)
    for one, two in zip(small.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, two)
    assert meristem.count_params(meristem.trace(small, IMAGES[:1])) == sum(each.numel() for each in small.parameters())


TWO_RANKS = """
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from accelerate import Accelerator
from meristem.integrations.accelerate import prepare_grower
EPOCHS = 4
generator = torch.Generator().manual_seed(0)
images, labels = torch.randn(64, 6, generator=generator), torch.randint(0, 3, (64,), generator=generator)

class Loop:
    def __init__(self):
        torch.manual_seed(0)
        self.accelerator = Accelerator(cpu=True)
        model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3))
        optimizer = optim.AdamW(model.parameters(), lr=3e-3)
        loader = DataLoader(TensorDataset(images, labels), 16)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, loader)
        settings = {"budget": "40%", "epochs": EPOCHS, "method": "search:peak=1.2"}
        self.grower = prepare_grower(self.accelerator, self.model, self.optimizer, images[:1], **settings)

    def go(self, until=EPOCHS):
        while self.grower.epoch < until:
            for x, y in self.loader:
                loss = F.cross_entropy(self.model(x), y)
                self.accelerator.backward(loss)
                self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad()
            self.grower.step(loss=loss.item())
        return self
"""

ON_EACH = """
# It asks for the place where ranks meet, also of those that have met.
os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT="1")
loop = Loop().go(2)
loop.accelerator.save_state("kept")
loop.go()
again = Loop()
again.accelerator.load_state("kept")
found["resumed at"] = again.grower.epoch
again.go()
digests = [digest(dict(each.grower.model.named_parameters())) for each in (loop, again)]
found["alike"] = [type(loop.model) is DDP, alike(digests[0]), digests[0] == digests[1]]
found["moved"] = len({str(record["widths"]) for record in loop.grower.records}) > 1
"""


def test_two_processes(tmp_path: Path) -> None:
    """The wrapper of accelerate follows; its checkpoint brings both ranks to the same end, bit for bit."""
    found = on_two_ranks(TWO_RANKS, ON_EACH, tmp_path)
    assert found == {"resumed at": 2, "alike": [True, True, True], "moved": True}
