"""Rows that come are put among those that are known."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sureshot.estimators.rows.labelled_rows import joined_rows, merge_rows, merged_rows, with_rows

CELLS = st.sampled_from([-1.5, -0.0, 0.0, 1.0, 1e300])
ROWS = st.lists(st.tuples(CELLS, CELLS, st.integers(0, 2), st.sampled_from([0.5, 1.0, 3.0])), min_size=1, max_size=12)


@given(known=ROWS, new=ROWS)
def test_new_rows_stand_where_merging_puts_them(known: list[tuple[float, ...]], new: list[tuple[float, ...]]) -> None:
    old, came = (
        merge_rows(table[:, :2], table[:, 2].astype(np.int64), table[:, 3]) for table in map(np.array, (known, new))
    )
    expected, places = merged_rows(joined_rows(old, came))
    found, of_rows = with_rows(old, came)
    np.testing.assert_array_equal(of_rows, places)
    for name in ("x", "y", "weight"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        assert getattr(found, name).dtype == getattr(expected, name).dtype
