"""The table of deliberate mistakes: true of the source, chosen by a change, compared with an earlier run."""

from __future__ import annotations

import pytest

from scripts.deliberate_mistakes import (
    CAUGHT,
    ROOT,
    SURVIVED,
    TABLES,
    TIMED_OUT,
    Mistake,
    Outcome,
    TableError,
    changed_since,
    differences,
    read_tables,
)


def test_every_mistake_can_be_made_and_its_tests_are_there() -> None:
    """`read_tables` finds the text of each in the source, once."""
    for test in sorted({test for mistake in read_tables(TABLES) for test in mistake.tests}):
        file, _, name = test.partition("::")
        assert (ROOT / file).exists(), test
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / file).read_text(encoding="utf-8"), test


def test_a_run_is_compared_with_an_earlier_one() -> None:
    found = {"a": CAUGHT, "b": SURVIVED, "c": CAUGHT, "d": TIMED_OUT, "e": SURVIVED}
    outcomes = [Outcome(Mistake("area", name, "", "", "", ()), verdict, 0.0, "") for name, verdict in found.items()]
    earlier = ["area: a", "area: b", "area: d", "area: not tried"]
    assert differences(outcomes, earlier) == [
        "no longer caught: area: b",
        "no longer caught: area: d",
        "caught now, not before: area: c",
    ]
    assert differences(outcomes, ["area: a", "area: c"]) == []


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_a_revision_that_is_not_there_is_named() -> None:
    with pytest.raises(TableError, match="no-such-revision"):
        changed_since("no-such-revision")
