"""A grower's state as a dict: torch saves and loads it, another grower goes on with it. How a grower shows itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from growing import Growth, assert_same, everything, spoil
from meristem import Budget
from meristem.errors import FileError


@pytest.mark.parametrize("preset", ["default", "paper", "gates"])
@pytest.mark.parametrize("name", ["plain", "lstm_lm"])
def test_a_grower_goes_on_from_a_state_that_torch_has_saved(name: str, preset: str, tmp_path: Path, space_of) -> None:
    """With torch.load's safe default, in the middle of an epoch; nothing comes from the grower it is loaded into."""

    def begun() -> Growth:
        torch.manual_seed(0)
        return Growth(name, space_of(name), preset, epochs=4, steps=3)

    first = begun().go(until=7)
    torch.save(first.grower.state_dict(), tmp_path / "state.pt")
    random_state, scheduler = torch.get_rng_state(), first.scheduler.state_dict()
    second = begun()
    spoil(second.model)
    second.grower.load_state_dict(torch.load(tmp_path / "state.pt"))
    second.scheduler.load_state_dict(scheduler)
    second.done, second.losses = first.done, list(first.losses)
    for growth in (first, second):
        torch.set_rng_state(random_state)
        growth.go()
    assert_same(everything(second), everything(first))


def test_the_state_of_another_run_is_refused_and_changes_nothing(space_of) -> None:
    state = Growth("plain", space_of("plain"), epochs=4).go(until=2).grower.state_dict()
    other = Growth("plain", space_of("plain"), epochs=5)
    before = everything(other)
    with pytest.raises(FileError, match=r"^this state was saved by another run: its epochs is 4, here 5$"):
        other.grower.load_state_dict(state)
    with pytest.raises(FileError, match=r"^this state is not the state of a grower$"):
        other.grower.load_state_dict({"weight": torch.zeros(2)})
    assert_same(everything(other), before)


def test_it_tells_budget_epoch_widths_and_cost(space_of) -> None:
    grower = Growth("plain", space_of("plain"), epochs=4, budget=Budget(params="50%")).go(until=2).grower
    text = repr(grower)
    assert text.startswith("Grower(")
    for fact in ("budget params 50%", "epoch 1 of 4", "params ", "macs ", "training cost ", "widths "):
        assert fact in text
    page = grower._repr_html_()
    assert page.count("<progress") == len(grower.widths)
    for name, width in grower.widths.items():
        assert f"{width} of {grower.space.groups[name].units}" in page, name


def test_methods_and_budgets_as_text(space_of) -> None:
    growth = Growth("plain", space_of("plain"), "paper:temperature=global", epochs=2, budget="40%")
    assert str(growth.grower.budget) == "params 40%"
    assert type(growth.grower.method.temperature).__name__ == "Global"
    dense = Growth("plain", space_of("plain"), "dense", epochs=2, budget="1%").go()
    assert dense.grower.widths == dense.grower.space.full, "which has no budget"
