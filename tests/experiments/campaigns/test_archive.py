"""Records are packed into one file; a campaign that is killed at any moment loses none."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.campaigns.archive import archive_of, keep, kept, pack


def packed(results: Path, *records: dict[str, object]) -> bytes:
    for record in records:
        keep(results, record)
    pack(results)
    assert not results.exists()
    return archive_of(results).read_bytes()


def test_equal_records_make_equal_files_in_whatever_order_they_come(tmp_path: Path) -> None:
    one, two = {"key": "one", "score": 0.1, "seed": 1}, {"key": "two", "score": 0.2, "seed": 2}
    together = packed(tmp_path / "a", one, two)
    packed(tmp_path / "b", dict(reversed(two.items())))
    assert packed(tmp_path / "b", one) == together
    pack(tmp_path / "b")  # nothing to do
    assert kept(tmp_path / "b", "one") == one
    assert kept(tmp_path / "b", "three") is None


def test_a_new_record_replaces_an_old_one_before_and_after_packing(tmp_path: Path) -> None:
    results = tmp_path / "cells"
    packed(results, {"key": "one", "score": 1}, {"key": "two", "score": 2})
    keep(results, {"key": "one", "score": 3})
    assert kept(results, "one") == {"key": "one", "score": 3}
    pack(results)
    assert kept(results, "one") == {"key": "one", "score": 3}
    assert kept(results, "two") == {"key": "two", "score": 2}


def test_a_process_that_dies_while_it_packs_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results, records = tmp_path / "cells", [{"key": key} for key in ("one", "two", "three")]
    for record in records:
        keep(results, record)
    unlink = Path.unlink

    def die_at_the_second(path: Path, missing_ok: bool = False) -> None:
        if path.name == "three.json":
            raise KeyboardInterrupt
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", die_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        pack(results)
    assert [kept(results, str(record["key"])) for record in records] == records
    monkeypatch.undo()
    assert packed(results) == packed(tmp_path / "other", *records)


@pytest.mark.parametrize("content", [b"no gzip", b"\x1f\x8b\x08\x00"])
def test_a_damaged_file_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "cells.jsonl.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"cells\.jsonl\.gz is damaged"):
        kept(tmp_path / "cells", "one")


def test_a_file_that_was_cut_short_is_damaged(tmp_path: Path) -> None:
    whole = packed(tmp_path / "cells", {"key": "one", "text": "some words"})
    archive_of(tmp_path / "cells").write_bytes(whole[:-9])
    with pytest.raises(ValueError, match="is damaged"):
        kept(tmp_path / "cells", "one")
