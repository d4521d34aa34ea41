"""Growing under DistributedDataParallel: one wrapper for the whole run, and the numbers of one process."""

from __future__ import annotations

import pytest

from two_ranks import on_two_ranks

BEFORE = """
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

EPOCHS, STEPS, BATCH = 5, 2, 8

class Net(nn.Module):
    # Norms that look at one sample: with batch norm two processes see other statistics than one.
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 8, 3, padding=1)
        self.norm = nn.GroupNorm(1, 8)
        self.inner = nn.Conv2d(8, 12, 3)
        self.outer = nn.Conv2d(12, 8, 3, padding=2)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        x = x + self.outer(torch.relu(self.inner(x)))
        return self.head(x.mean((2, 3)))

generator = torch.Generator().manual_seed(5)
images = torch.randn(EPOCHS * STEPS, BATCH, 2, 6, 6, generator=generator)
labels = torch.randint(0, 3, (EPOCHS * STEPS, BATCH), generator=generator)
space = meristem.trace(Net(), images[0, :1])

def grown(method, rows, wrap, seed=0, budget="50%", average=None, kind=optim.SGD, wrong_seed=0, epochs=EPOCHS):
    torch.manual_seed(seed + wrong_seed)  # what both ranks start from is what rank 0 built
    model = wrap(Net())
    optimizer = kind(model.parameters(), lr=0.05)
    more = {"held_out_loss": lambda net: nn.functional.cross_entropy(net(images[0, rows]), labels[0, rows])}
    grower = meristem.Grower(
        model, optimizer, images[0, :1], budget=budget, epochs=epochs, method=method, space=space, seed=seed, **more
    )
    averaged = None
    if average:
        averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
        grower.follow(averaged)
    losses, same = [], []
    for step in range(epochs * STEPS):
        loss = nn.functional.cross_entropy(model(images[step, rows]), labels[step, rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if averaged is not None:
            averaged.update_parameters(model)
        losses.append(float(loss.detach()))
        if step % STEPS == STEPS - 1:
            grower.step(loss=losses[-1])
    return model, grower, losses, averaged

def state(grower):
    return {name: values for name, values in grower.model.state_dict().items()}

everything = slice(None)
METHODS = ("default:peak=1.2", "search:peak=1.2", "gates:peak=1.2", "paper", "noise-test", "thinet")
# Before there are ranks: what one process makes of all samples.
alone = {method: grown(method, everything, lambda model: model) for method in METHODS}
alone["averages"] = grown("search:peak=1.2", everything, lambda model: model, average=True)
"""

SCRIPT = """
mine = slice(0, BATCH // 2) if rank == 0 else slice(BATCH // 2, None)

def compare(model, grower, losses, averaged, other):
    every = [None, None]
    dist.all_gather_object(every, losses)
    there = other[1]
    apart = max(
        float((one - state(there)[name]).abs().max()) if one.shape == state(there)[name].shape else float("inf")
        for name, one in state(grower).items()
    )
    found = {
        "masks": alike(masks_of(grower)),
        "parameters": alike(digest(state(grower))),
        "records": alike([record["metrics"] for record in grower.records]),
        "as alone": masks_of(grower) == masks_of(there),
        "moved": len({str(record["widths"]) for record in grower.records}) > 1,
        "weights apart": apart,
        "losses apart": max(abs(sum(two) / 2 - one) for two, one in zip(zip(*every), other[2])),
        "spend apart": abs(grower.ledger.spend_frac - there.ledger.spend_frac),
    }
    if averaged is not None:
        found["averages"] = alike(digest(dict(averaged.named_parameters())))
        theirs = dict(other[3].module.named_parameters())
        ours = dict(averaged.module.module.named_parameters())
        gaps = [(values - theirs[name]).detach().abs().max() for name, values in ours.items()]
        found["averages apart"] = float(max(gaps))
        averaged(images[0, mine])  # the wrapper inside has followed, too
    return found

for method in METHODS:
    found[method] = compare(*grown(method, mine, DDP, wrong_seed=rank), alone[method])
found["averages"] = compare(*grown("search:peak=1.2", mine, DDP, average=True), alone["averages"])

# Settings of the wrapper live on in the reducer that is built anew.
def with_hook(model):
    wrapper = DDP(model)
    wrapper.register_comm_hook(None, allreduce_hook)
    return wrapper

kinds = {
    "bucket views": lambda model: DDP(model, gradient_as_bucket_view=True),
    "static graph": lambda model: DDP(model, static_graph=True),
    "unused": lambda model: DDP(model, find_unused_parameters=True),
    "communication hook": with_hook,
    "small buckets": lambda model: DDP(model, bucket_cap_mb=0.001),
}
for name, wrap in kinds.items():
    found[name] = compare(*grown("search:peak=1.2", mine, wrap), alone["search:peak=1.2"])

# What the user has hung on the wrapper stays, and the wrapper is the same object.
seen = []
wrapper = DDP(Net())
wrapper.register_forward_hook(lambda *_: seen.append(1))
model, grower, *_ = grown("search:peak=1.2", mine, lambda model: wrapper)
found["hooks"] = model is wrapper and len(seen) == EPOCHS * STEPS

# Saved by rank 0, resumed by both: the wrapper made anew follows.
model, grower, losses, _ = grown("search:peak=1.2", mine, DDP, epochs=3)
if rank == 0:
    grower.checkpoint("kept")
dist.barrier()
torch.manual_seed(9)
again = DDP(Net())
optimizer = optim.SGD(again.parameters(), lr=0.05)
settings = {"budget": "50%", "epochs": 3, "method": "search:peak=1.2", "space": space}
resumed = meristem.Grower(again, optimizer, images[0, :1], **settings)
resumed.resume("kept")
again(images[0, mine]).sum().backward()
found["resumed"] = [
    alike(digest(state(resumed))),
    digest(state(resumed)) == digest(state(grower)),
    alike(digest({name: each.grad for name, each in again.named_parameters()})),
]

# Structure on both ranks, over 20 seeds, with a budget that makes each draw another network.
found["seeds"] = []
for seed in range(20):
    _, grower, *_ = grown("paper" if seed % 2 else "random", mine, DDP, seed=seed, epochs=3)
    every = [None, None]
    dist.all_gather_object(every, masks_of(grower))
    found["seeds"].append([every[0] == every[1], str(every[0])])

# What cannot follow is refused, before anything is changed.
def refused(make):
    try:
        model = make()
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        meristem.Grower(model, optimizer, images[0, :1], budget="50%", epochs=2, space=space)
    except meristem.MeristemError as error:
        return str(error)

def power():
    wrapper = DDP(Net())
    wrapper.register_comm_hook(PowerSGDState(None), powerSGD_hook)
    return wrapper

def apart():
    torch.manual_seed(rank)
    return Net()

def delayed():
    model = Net()
    return DDP(
        model, delay_all_reduce_named_params=[("head.bias", model.head.bias)],
        param_to_hook_all_reduce=model.head.weight,
    )

found["refused"] = {
    "delays the averaging": refused(delayed),
    "process_group": refused(lambda: DDP(Net(), process_group=dist.new_group([0, 1]))),
    "PowerSGDState": refused(power),
    "start from different weights": refused(apart),
}

# The safety net: whoever changes the model behind the grower's back.
model, grower, *_ = grown("uniform", mine, DDP, epochs=2)
grower.live.apply(grower.live.plan({name: range(2) for name in space.groups}))
try:
    model(images[0, mine])
except meristem.MeristemError as error:
    found["stale"] = str(error)
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return on_two_ranks(BEFORE, SCRIPT, tmp_path_factory.mktemp("ranks"))


METHODS = ("default:peak=1.2", "search:peak=1.2", "gates:peak=1.2", "paper", "noise-test")
WRAPPERS = ("bucket views", "static graph", "unused", "communication hook", "small buckets")


@pytest.mark.parametrize("name", [*METHODS, "averages", *WRAPPERS])
def test_the_numbers_of_one_process(found: dict, name: str) -> None:
    """The same network on both ranks bit for bit, and what one process makes of all samples, within rounding."""
    run = found[name]
    assert run["masks"]
    assert run["parameters"]
    assert run["records"]
    assert run["as alone"]
    assert run["losses apart"] < 1e-5
    assert run["weights apart"] < 1e-5
    assert run["spend apart"] < 1e-9
    if name == "averages":
        assert run["averages"]
        assert run["averages apart"] < 1e-5


def test_a_method_that_draws_places_of_the_data_decides_alike(found: dict) -> None:
    """Of other places than one process would: each rank looks at its own samples."""
    run = found["thinet"]
    assert run["masks"]
    assert run["parameters"]


def test_networks_change_on_the_way(found: dict) -> None:
    assert all(found[name]["moved"] for name in METHODS)


def test_what_hangs_on_the_wrapper_stays(found: dict) -> None:
    assert found["hooks"]


def test_resumed_ranks_go_on_with_the_same_wrapper(found: dict) -> None:
    assert found["resumed"] == [True, True, True]


def test_structure_over_20_seeds(found: dict) -> None:
    assert all(same for same, _ in found["seeds"])
    assert len({masks for _, masks in found["seeds"]}) > 10


def test_what_cannot_follow_is_refused(found: dict) -> None:
    for words, message in found["refused"].items():
        assert words in str(message)


def test_a_wrapper_of_another_model_refuses_to_run(found: dict) -> None:
    assert "averages the gradients of parameters that the model no longer has" in found["stale"]
