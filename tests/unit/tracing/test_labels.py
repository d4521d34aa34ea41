"""Labels and their resolution: unions, pins, products, and what follows from them."""

from __future__ import annotations

import numpy as np
import pytest

from meristem.tracing.labels import ANY, Dim, Labels, constant, dim_of
from meristem.tracing.resolve import resolve


def fresh(labels: Labels, size: int) -> Dim:
    return Dim(size, labels.fresh(size))


def test_uniting_makes_positions_one() -> None:
    labels = Labels()
    a, b, c = (fresh(labels, 3) for _ in range(3))
    labels.unite(a, b, "")
    labels.unite(b, c, "")
    root = resolve(labels).root
    assert (root[a.ids] == root[c.ids]).all()
    assert len(set(root[a.ids])) == 3


def test_meeting_a_fixed_dimension_pins() -> None:
    labels = Labels()
    a = fresh(labels, 3)
    labels.unite(a, Dim(3), "it meets the input")
    found = resolve(labels)
    assert [found.reasons[n] for n in found.pinned[found.root[a.ids]]] == ["it meets the input"] * 3
    assert found.leaves(a.ids) == []


def test_meeting_a_constant_pins_nothing() -> None:
    labels = Labels()
    a = fresh(labels, 3)
    assert labels.unite(a, constant(3), "") is a
    assert labels.unite(constant(3), a, "") is a
    partly = dim_of(np.array([ANY, *a.ids[:1], 0]))
    labels.unite(a, partly, "the last is fixed")
    found = resolve(labels)
    assert (found.pinned[found.root[a.ids]] > 0).tolist() == [False, False, True]


def test_broadcasting_pins_the_small_side() -> None:
    labels = Labels()
    one, many = Dim(1, labels.fresh(1)), fresh(labels, 4)
    assert labels.unite(one, many, "a sum").ids is many.ids
    assert labels.pins[0].reason == "a sum, where it is broadcast"
    with pytest.raises(ValueError, match="sizes 3 and 4 do not meet"):
        labels.unite(fresh(labels, 3), many, "")


def test_split_makes_rows_and_columns() -> None:
    """Six positions viewed as 2 x 3: what survives is a rectangle, so the units are 2 rows and 3 columns."""
    labels = Labels()
    whole = fresh(labels, 6)
    rows, columns = labels.split(whole, [2, 3])
    assert (rows.size, columns.size) == (2, 3)
    one, two = resolve(labels).leaves(whole.ids)
    assert one.tolist() == np.repeat(rows.ids, 3).tolist()
    assert two.tolist() == np.tile(columns.ids, 2).tolist()


def test_split_of_what_varies_along_one_axis_only() -> None:
    """A dimension made of repeated units is cut back to them: no product is needed."""
    labels = Labels()
    units = labels.fresh(3)
    rows, columns = labels.split(Dim(6, np.repeat(units, 2)), [3, 2])
    assert rows.ids.tolist() == units.tolist()
    assert columns.ids is None
    rows, columns = labels.split(Dim(6, np.tile(units, 2)), [2, 3])
    assert rows.ids is None
    assert columns.ids.tolist() == units.tolist()
    assert not labels.factorings


def test_split_into_three() -> None:
    labels = Labels()
    whole = fresh(labels, 24)
    parts = labels.split(whole, [2, 3, 4])
    assert [part.size for part in parts] == [2, 3, 4]
    assert len(resolve(labels).leaves(whole.ids)) == 3


def test_merge_is_undone_by_split() -> None:
    """flatten then view back: rows and columns are the same units as before."""
    labels = Labels()
    a, b = fresh(labels, 2), fresh(labels, 3)
    rows, columns = labels.split(labels.merge([a, b]), [2, 3])
    root = resolve(labels).root
    assert root[rows.ids].tolist() == root[a.ids].tolist()
    assert root[columns.ids].tolist() == root[b.ids].tolist()


def test_merge_with_a_fixed_dimension_repeats() -> None:
    labels = Labels()
    a = fresh(labels, 2)
    assert labels.merge([a, Dim(3)]).ids.tolist() == np.repeat(a.ids, 3).tolist()
    assert labels.merge([Dim(3), a]).ids.tolist() == np.tile(a.ids, 3).tolist()
    assert labels.merge([a, Dim(1)]) is a
    assert labels.merge([Dim(2), constant(3)]).ids is None


def test_equal_products_have_equal_factors() -> None:
    """Congruence: two grids that meet position by position have the same rows and the same columns."""
    labels = Labels()
    one, two = fresh(labels, 6), fresh(labels, 6)
    rows1, columns1 = labels.split(one, [2, 3])
    rows2, columns2 = labels.split(two, [2, 3])
    labels.unite(one, two, "")
    root = resolve(labels).root
    assert root[rows1.ids].tolist() == root[rows2.ids].tolist()
    assert root[columns1.ids].tolist() == root[columns2.ids].tolist()


def test_a_pinned_product_pins_its_factors() -> None:
    labels = Labels()
    whole = fresh(labels, 6)
    rows, columns = labels.split(whole, [2, 3])
    labels.pin(whole, "the output")
    found = resolve(labels)
    assert (found.pinned[found.root[np.concatenate([rows.ids, columns.ids])]] > 0).all()


def test_a_pinned_factor_leaves_the_other_free() -> None:
    labels = Labels()
    whole = fresh(labels, 6)
    rows, columns = labels.split(whole, [2, 3])
    labels.pin(rows, "counts the parts of a split")
    (only,) = resolve(labels).leaves(whole.ids)
    assert only.tolist() == np.tile(columns.ids, 2).tolist()


def test_conflicting_views_are_pinned_not_guessed() -> None:
    """Six positions as 2 x 3 and as 3 x 2, the rows of one being columns of the other: no rectangle is both."""
    labels = Labels()
    whole = fresh(labels, 6)
    rows, _ = labels.split(whole, [2, 3])
    _, columns = labels.split(whole, [3, 2])
    labels.unite(rows, columns, "")
    found = resolve(labels)
    for column in found.leaves(whole.ids):
        assert len(set(column[column > 0])) <= 1


def test_a_label_that_is_its_own_factor_is_pinned() -> None:
    labels = Labels()
    whole = fresh(labels, 4)
    rows, _ = labels.split(whole, [2, 2])
    labels.unite(dim_of(whole.ids[:2]), rows, "")
    found = resolve(labels)
    assert "it is reshaped into itself in a way that is not understood" in found.reasons
    assert (found.pinned[found.root[whole.ids[:2]]] > 0).all()


def test_reshape_of_partly_owned_positions_is_pinned() -> None:
    labels = Labels()
    ids = np.array([*labels.fresh(3), 0])
    labels.split(Dim(4, ids), [2, 2])
    found = resolve(labels)
    assert (found.pinned[found.root[ids[:3]]] > 0).all()
    assert "only a part of a reshaped dimension has units" in found.reasons
