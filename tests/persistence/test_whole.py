"""Files appear whole or not at all; links stay links, and what is no file is not replaced."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from sureshot.persistence import is_special, written_whole


def write(path: Path, text: str) -> None:
    with written_whole(path) as temporary:
        temporary.write_text(text)


def test_a_failure_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    write(tmp_path / "a", "old")
    with pytest.raises(FileNotFoundError), written_whole(tmp_path / "a") as temporary:
        temporary.with_name("elsewhere").read_text()
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_permissions_stay_and_links_are_followed(tmp_path: Path) -> None:
    write(tmp_path / "a", "old")
    (tmp_path / "a").chmod(0o600)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    write(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


def test_a_pipe_is_sent_the_whole(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert is_special(pipe)
    assert not is_special(tmp_path)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write(pipe, "all of it")
    reader.join()
    assert read == ["all of it"]
    assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is full")
def test_errors_of_writing_name_the_file() -> None:
    with pytest.raises(OSError, match="/dev/full") as caught, written_whole(Path("/dev/full")) as temporary:
        temporary.write_text("more than there is room for")
    assert caught.value.filename == "/dev/full"
