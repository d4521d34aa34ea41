"""Methods with a teacher, and methods that try networks out, on two ranks: one network, and one ledger of both."""

from __future__ import annotations

import pytest

from two_ranks import on_two_ranks

BEFORE = """
EPOCHS, STEPS, BATCH = 8, 2, 8

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.inner, self.head = nn.Conv2d(2, 8, 3), nn.Conv2d(8, 12, 3), nn.Linear(12, 3)

    def forward(self, x):
        return self.head(torch.relu(self.inner(torch.relu(self.stem(x)))).mean((2, 3)))

generator = torch.Generator().manual_seed(5)
images = torch.randn(EPOCHS * STEPS, BATCH, 2, 6, 6, generator=generator)
labels = torch.randint(0, 3, (EPOCHS * STEPS, BATCH), generator=generator)
space = meristem.trace(Net(), images[0, :1])
cross_entropy = nn.functional.cross_entropy

def grown(method, rows, wrap):
    torch.manual_seed(0)
    model = wrap(Net())
    optimizer = optim.SGD(model.parameters(), lr=0.05)

    def short_training(net, steps, seed):
        own = optim.SGD(net.parameters(), lr=0.01)
        for step in range(steps):
            own.zero_grad()
            cross_entropy(net(images[step, rows]), labels[step, rows]).backward()
            own.step()

    grower = meristem.Grower(
        model, optimizer, images[0, :1], budget="50%", epochs=EPOCHS, method=method, space=space, batch_size=BATCH,
        held_out_loss=lambda net: cross_entropy(net(images[0, rows]), labels[0, rows]), short_training=short_training,
    )
    for step in range(EPOCHS * STEPS):
        outputs = model(images[step, rows])
        loss = grower.taught(cross_entropy(outputs, labels[step, rows]), outputs, images[step, rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % STEPS == STEPS - 1:
            grower.step()
    return grower

METHODS = ("bar", "netadapt:steps=2")
alone = {method: grown(method, slice(None), lambda model: model) for method in METHODS}
"""

SCRIPT = """
mine = slice(0, BATCH // 2) if rank == 0 else slice(BATCH // 2, None)
for method in METHODS:
    grower, there = grown(method, mine, DDP), alone[method]
    found[method] = {
        "masks": alike(masks_of(grower)),
        "parameters": alike(digest(grower.model.state_dict())),
        "ledger": alike(grower.ledger.by_stage),
        "by stage": [dict(each.ledger.by_stage) for each in (grower, there)],
        "as alone": masks_of(grower) == masks_of(there),
        "share": grower.records[-1]["params_frac"],
    }
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict:
    return on_two_ranks(BEFORE, SCRIPT, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("method", ["bar", "netadapt:steps=2"])
def test_both_ranks_have_one_network(found: dict, method: str) -> None:
    run = found[method]
    assert run["masks"]
    assert run["parameters"]
    assert run["ledger"]
    assert run["share"] <= 0.5


def test_a_teacher_costs_on_two_ranks_what_it_costs_on_one(found: dict) -> None:
    both, one = found["bar"]["by stage"]
    assert both == pytest.approx(one)
    assert both["teach"] > 0
    assert found["bar"]["as alone"]


def test_trials_of_both_ranks_are_counted(found: dict) -> None:
    """Each tries every proposal out on its own half of the batch: together as much as one process."""
    both, one = found["netadapt:steps=2"]["by stage"]
    assert both["search"] == pytest.approx(one["search"], rel=0.2)  # the proposals after the first step may differ
