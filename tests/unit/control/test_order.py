"""Preference: who lives before whom."""

from __future__ import annotations

import numpy as np
import pytest

from meristem.control.order import ImportancePerPrice, InStep, UnitStatus
from meristem.space.arrays import BoolArray, FloatArray


def flags(text: str) -> BoolArray:
    return np.array([letter == "1" for letter in text])


def standing(importance: list[float], live: str, lived: str, price: float = 1.0) -> UnitStatus:
    return UnitStatus({"a": np.array(importance)}, {"a": flags(live)}, {"a": flags(lived)}, {"a": price})


def order(preference: FloatArray) -> list[int]:
    return np.argsort(-preference, kind="stable").tolist()


@pytest.mark.parametrize("value", [InStep(), ImportancePerPrice()], ids=["in step", "search"])
def test_live_by_evidence_then_new_units_then_stored_ones(value: InStep | ImportancePerPrice) -> None:
    """Units 1 and 4 live, 0 and 3 were detached, 2 never lived: it gets its chance before those that had theirs."""
    found = value.preference(standing([5.0, 1.0, 0.0, 9.0, 2.0], live="01001", lived="11011"))["a"]
    assert order(found) == [4, 1, 2, 3, 0]


def test_in_step_gives_every_group_the_same_share() -> None:
    importance = {"wide": np.arange(8.0), "narrow": np.arange(2.0)}
    live = {name: np.ones(len(values), dtype=np.bool_) for name, values in importance.items()}
    found = InStep().preference(UnitStatus(importance, live, live, {}))
    for share in (0.25, 0.5, 0.75):
        kept = {name: (values > -share).sum() / len(values) for name, values in found.items()}
        assert kept["wide"] == share
        assert abs(kept["narrow"] - share) <= 0.5


def test_worth_falls_with_the_price_and_rises_with_the_evidence() -> None:
    cheap, dear = (
        ImportancePerPrice().preference(standing([4.0, 1.0], "11", "11", price))["a"] for price in (1.0, 10.0)
    )
    assert (cheap - dear) == pytest.approx(np.log(10.0))
    assert cheap[0] - cheap[1] == pytest.approx(np.log(4.0))


def test_absent_units_share_the_evidence_of_their_group() -> None:
    """Two live units with 6 between them: a third may expect 6/3, a fourth 6/4."""
    found = ImportancePerPrice(loyalty=1.0).preference(standing([4.0, 2.0, 0.0, 0.0], "1100", "1100"))["a"]
    assert np.exp(found) == pytest.approx([4.0, 2.0, 2.0, 1.5])


def test_loyalty_keeps_live_units_until_they_are_as_good_as_dead() -> None:
    weak, dead = (
        ImportancePerPrice().preference(standing([1.0, small, 0.0], "110", "110"))["a"] for small in (1e-2, 1e-9)
    )
    assert weak[1] > weak[2]
    assert dead[1] < dead[2]


def test_a_group_at_most_doubles_while_others_can_grow() -> None:
    found = ImportancePerPrice().preference(standing([1.0, 0, 0, 0, 0], "10000", "10000"))["a"]
    assert found[1] > -10
    assert (found[2:] < -1e5).all()


def test_a_group_without_evidence_still_has_an_order() -> None:
    found = ImportancePerPrice().preference(standing([0.0, 0.0, 0.0], "110", "110"))["a"]
    assert np.isfinite(found).all()


def test_groups_without_importance_keep_the_share_of_the_others() -> None:
    """No weight reads what queries share with keys: an importance of 0 there does not mean that nobody needs it."""
    live = {"read": flags("11111111"), "shared": flags("1111")}
    importance = {"read": np.array([8.0, 7, 6, 5, 4, 3, 2, 1]), "shared": np.zeros(4)}
    prices = {"read": 1.0, "shared": 1.0}
    found = ImportancePerPrice().preference(UnitStatus(importance, live, live, prices, ungated=frozenset({"shared"})))
    half = np.sort(found["read"])[4]
    assert (found["read"] >= half).sum() == 4
    assert (found["shared"] >= half).sum() == 2
