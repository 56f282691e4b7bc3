"""Arguments of the library as options of the command line."""

from __future__ import annotations

import pytest

from sureshot.cli.wording import as_options


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("strategy must be one of 'session'; got 'x'.", "--strategy must be one of 'session'; got 'x'."),
        ("n_jobs must be positive; got 0.", "--jobs must be positive; got 0."),
        ("pass row_id= to fit and partial_fit", "pass --id to fit and `sureshot update`"),
        ("likelihood='logistic' is for two classes", "--likelihood logistic is for two classes"),
        ("a.csv: as another kind (columns={'A b': 'category'})", "a.csv: as another kind (--kind 'A b=category')"),
        ("""another kind (columns={"it's": 'date'})""", """another kind (--kind "it's=date")"""),
        ("influence compares two classes", "--why: influence compares two classes"),
        ("d.csv: no column 'kernel'", "d.csv: no column 'kernel'"),
    ],
)
def test_options_take_the_place_of_arguments(message: str, expected: str) -> None:
    assert as_options(message) == expected
