"""Growing a model that FSDP2 shards: the numbers of one process, also after a checkpoint of the sharded run."""

from __future__ import annotations

import pytest
import torch

import meristem
from two_ranks import on_two_ranks

BEFORE = """
import warnings
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from meristem.errors import FileError

EPOCHS, STEPS, BATCH = 5, 3, 8

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Linear(5, 9)
        block = lambda: nn.Sequential(nn.LayerNorm(9), nn.Linear(9, 14), nn.GELU(), nn.Linear(14, 9))
        self.blocks = nn.ModuleList(block() for _ in range(2))
        self.count = nn.Buffer(torch.zeros(()))
        self.head = nn.Linear(9, 3)

    def forward(self, x):
        x = self.read(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)

generator = torch.Generator().manual_seed(5)
inputs = torch.randn(EPOCHS * STEPS, BATCH, 5, generator=generator)
labels = torch.randint(0, 3, (EPOCHS * STEPS, BATCH), generator=generator)
space = meristem.trace(Net(), inputs[0, :1])
KINDS = {
    "sgd": lambda params: optim.SGD(params, lr=0.1, momentum=0.9),
    "adamw": lambda params: optim.AdamW(params, lr=0.01, amsgrad=True),
}

def shard(model):
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)

class Reader(nn.Module):
    # Recurrent modules keep a list of their weights, and one weight is used twice.
    def __init__(self):
        super().__init__()
        self.read = nn.LSTM(1, 7)
        self.first, self.second = nn.Linear(7, 7), nn.Linear(7, 7)
        self.second.weight = self.first.weight
        self.head = nn.Linear(7, 3)

    def forward(self, x):
        read = self.read(x.t()[:, :, None])[0][-1]
        return self.head(self.second(torch.relu(self.first(read))))

spaces = {Net: space, Reader: meristem.trace(Reader(), inputs[0, :1])}

class Loop:
    def __init__(self, method, rows, kind="sgd", shard=None, net=Net, **more):
        torch.manual_seed(0)
        self.model, self.rows, self.losses = net(), rows, []
        self.optimizer = KINDS[kind](self.model.parameters())
        held_out = lambda net: nn.functional.cross_entropy(net(inputs[0, rows]), labels[0, rows])
        more.update(space=spaces[net], seed=0, shard=shard, held_out_loss=held_out)
        self.grower = meristem.Grower(
            self.model, self.optimizer, inputs[0, :1], budget="50%", epochs=EPOCHS, method=method, **more
        )

    def go(self, until=EPOCHS, after=lambda: None):
        while self.grower.epoch < until:
            for step in range(self.grower.epoch * STEPS, (self.grower.epoch + 1) * STEPS):
                loss = nn.functional.cross_entropy(self.model(inputs[step, self.rows]), labels[step, self.rows])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.losses.append(float(loss.detach()))
            self.grower.step(loss=self.losses[-1])
            after()
        return self

CASES = [
    ("default:peak=1.2", "adamw"), ("search:peak=1.2", "sgd"), ("search:peak=1.2", "adamw"), ("gates:peak=1.2", "sgd"),
    ("l1", "adamw"), ("noise-test", "sgd"), ("soft-pruning", "sgd"),
]
alone = {case: Loop(case[0], slice(None), case[1]).go() for case in CASES}
alone["reader"] = Loop("search:peak=1.2", slice(None), net=Reader).go()
"""

SCRIPT = """
mine = slice(0, BATCH // 2) if rank == 0 else slice(BATCH // 2, None)
halves = []

def looked_at(loop):
    # Between two steps every rank has its rows and no more, of the parameters and of the optimizer's state.
    for parameter in loop.model.parameters():
        state = [each for each in loop.optimizer.state.get(parameter, {}).values() if each.dim()]
        halves.append(all(isinstance(each, DTensor) and each.shape == parameter.shape for each in (parameter, *state)))

def compare(loop, other):
    every = [None, None]
    dist.all_gather_object(every, loop.losses)
    small, there = loop.grower.export().state_dict(), other.grower.export().state_dict()
    same = masks_of(loop.grower) == masks_of(other.grower)
    return {
        "masks": alike(masks_of(loop.grower)),
        "parameters": alike(digest(small)),
        "as alone": same,
        "moved": len({str(record["widths"]) for record in loop.grower.records}) > 1,
        "weights apart": max(float((small[name] - there[name]).abs().max()) for name in small) if same else 9.0,
        "losses apart": max(abs(sum(two) / 2 - one) for two, one in zip(zip(*every), other.losses)),
        "still sharded": isinstance(loop.model, FSDPModule) and isinstance(loop.model.head.weight, DTensor),
    }

for case in CASES:
    loop = Loop(case[0], mine, case[1], shard=shard)
    found[" ".join(case)] = compare(loop.go(after=lambda: looked_at(loop)), alone[case])
found["halves"] = all(halves)

# A checkpoint of all ranks, through torch.distributed.checkpoint.
case = ("search:peak=1.2", "adamw")
loop = Loop(*case[:1], mine, case[1], shard=shard).go(3)
loop.grower.checkpoint("kept", said="first")
loop.grower.checkpoint("kept", said="second")
again = Loop(*case[:1], mine, case[1], shard=shard)
found["added"] = again.grower.resume("kept")["said"]
again.losses = list(loop.losses)
found["resumed"] = compare(again.go(), alone[case])
loop.go()
found["resumed bits"] = digest(again.grower.export().state_dict()) == digest(loop.grower.export().state_dict())
found["files"] = sorted(os.listdir("kept"))

# Killed between two moves; damaged; no folder.
def refused(make):
    try:
        make()
    except (meristem.MeristemError, FileError) as error:
        return str(error)

def read(path):
    dist.barrier()
    grower = Loop(*case[:1], mine, case[1], shard=shard).grower
    return refused(lambda: grower.resume(path)) or grower.epoch

def by_rank_0(change):
    dist.barrier()
    if rank == 0:
        change()
    dist.barrier()

by_rank_0(lambda: os.rename("kept", ".kept.old"))
found["between moves"] = read("kept")
by_rank_0(lambda: os.remove(".kept.old/__1_0.distcp"))
found["damaged"] = read("kept")
by_rank_0(lambda: open("file", "w").close())
found["no folder"] = [read("file"), refused(lambda: loop.grower.checkpoint("file"))]
found["nothing"] = read("nowhere")

# What is kept as a dictionary can be loaded, too.
halfway = Loop(*case[:1], mine, case[1], shard=shard).go(2)
again = Loop(*case[:1], mine, case[1], shard=shard)
again.grower.load_state_dict(halfway.grower.state_dict())
again.losses = list(halfway.losses)
found["state"] = compare(again.go(), alone[case])

loop = Loop("search:peak=1.2", mine, shard=fully_shard, net=Reader).go()
found["reader"] = compare(loop, alone["reader"])
found["tied"] = loop.model.first.weight is loop.model.second.weight

# Evaluations between steps leave the weights of the root whole.
loop = Loop("search:peak=1.2", mine, shard=shard)
with torch.no_grad():
    loop.model(inputs[0, mine])
found["evaluated"] = compare(loop.go(after=lambda: loop.model(inputs[0, mine])), alone["search:peak=1.2", "sgd"])

# What cannot work is refused.
def made(kind=None, shard=shard, method="default", model=None, wrap=None):
    model = model or Net()
    optimizer = (kind or (lambda params: optim.SGD(params, lr=0.1)))(model.parameters())
    return meristem.Grower(model if wrap is None else wrap(model), optimizer, inputs[0, :1], budget="50%", epochs=2,
                           method=method, shard=shard)

def sharded_before():
    model = Net()
    shard(model)
    return made(model=model)

def follows():
    torch.manual_seed(0)
    before = Net()
    averaged = optim.swa_utils.AveragedModel(before)
    made(model=before).follow(averaged)

torch.manual_seed(0)
found["refused"] = {
    "scale the weights": refused(lambda: made(method="paper")),
    "acts on weights at every step": refused(lambda: made(method="iss")),
    "Adafactor looks at whole rows": refused(lambda: made(lambda params: optim.Adafactor(params, lr=0.1))),
    "has left a parameter": refused(lambda: made(shard=lambda model: fully_shard(model.head))),
    "Grower(..., shard=": refused(sharded_before),
    "not both": refused(lambda: made(wrap=DDP)),
    "averaged copies": refused(follows),
}
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return on_two_ranks(BEFORE, SCRIPT, tmp_path_factory.mktemp("ranks"))


CASES = (
    *("default:peak=1.2 adamw", "search:peak=1.2 sgd", "search:peak=1.2 adamw", "gates:peak=1.2 sgd", "l1 adamw"),
    *("noise-test sgd", "soft-pruning sgd", "resumed", "state", "evaluated", "reader"),
)


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_of_one_process(found: dict, name: str) -> None:
    run = found[name]
    assert run["masks"]
    assert run["parameters"]
    assert run["as alone"]
    assert run["moved"]
    assert run["losses apart"] < 1e-5
    assert run["weights apart"] < 1e-5
    assert run["still sharded"]


def test_tied_weights_stay_tied(found: dict) -> None:
    assert found["tied"]


def test_a_rank_has_its_rows_alone(found: dict) -> None:
    assert found["halves"]


def test_a_checkpoint_of_a_sharded_run(found: dict) -> None:
    """It goes on bit for bit, and both ranks have written their parts."""
    assert found["resumed bits"]
    assert found["added"] == "second"
    assert found["files"] == [".metadata", "__0_0.distcp", "__1_0.distcp", "rest.ckpt"]


def test_a_checkpoint_that_is_not_whole(found: dict) -> None:
    assert found["between moves"] == 3
    assert "kept.old is damaged" in found["damaged"]
    assert all("is a file, but the checkpoint of a sharded run is a folder" in each for each in found["no folder"])
    assert "does not exist" in found["nothing"]


def test_what_cannot_work_is_refused(found: dict) -> None:
    for words, message in found["refused"].items():
        assert words in str(message)


def test_one_process_has_nothing_to_share() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(meristem.MeristemError, match=r"init_process_group\(\) comes first"):
        meristem.Grower(model, optimizer, torch.ones(1, 3), budget="50%", epochs=1, shard=lambda model: None)
