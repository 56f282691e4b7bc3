"""Would the tests notice? One deliberate mistake at a time, and the tests that ought to fail.

    python scripts/deliberate_mistakes.py               # all of them
    python scripts/deliberate_mistakes.py --list        # what there is
    python scripts/deliberate_mistakes.py --only gibbs  # those with this in their name, area or file
    python scripts/deliberate_mistakes.py --change main # those whose file or tests are not as they were
    python scripts/deliberate_mistakes.py --jobs 2      # two at a time
    python scripts/deliberate_mistakes.py --against FILE --write FILE  # what has changed since an earlier run

The mistakes stand in ``scripts/mistakes/*.toml``, a file for each area of the source. An entry has a name, the file, a
text that occurs in it exactly once, what to put in its place, and the tests that ought to notice: paths, or single
tests as pytest names them, narrow enough to take seconds. To add one, add an entry. A change of the source that makes
an entry's text disappear is an error here, so that the table stays true.

First the named tests must pass on an unchanged copy of the source. Then each mistake gets a copy of its own, in which
pytest stops at the first failure. *Caught* means that a test failed; tests that pass, that do not finish in time or
cannot be collected have not caught anything. The exit status is 1 if fewer than 95 % are caught, 2 if the table or the
unchanged source is at fault. Names of those that were caught are written to a file, one a line, against which a later
run is compared.

Why not a tool that invents mistakes by itself: those change a sign or a comparison anywhere, mostly in lines where no
result depends on it. These are the mistakes that people make in this kind of mathematics: a square root forgotten, a
weight or prior mean dropped, one half too many.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLES = Path(__file__).resolve().parent / "mistakes"
COPIED = ("src", "experiments", "tests", "conftest.py", "pyproject.toml")
ENOUGH = 0.95
SECONDS = 300.0
"""For each selection of tests: they take seconds, and this is for one that a mistake keeps from ending."""

NOT_THE_COPY = 99

FORKS = multiprocessing.get_context("forkserver")
"""Processes that find the libraries below imported already, which takes longer than most selections of tests."""
PRELOADED = ["torch", "gpytorch", "sklearn.gaussian_process", "scipy.stats", "pandas"]

CAUGHT, SURVIVED, TIMED_OUT, BROKEN = "caught", "survived", "timed out", "broken"


class TableError(Exception):
    """An entry of the table, or the source without any mistake, is not as it should be."""


@dataclass(frozen=True)
class Mistake:
    """One entry of a table; see the notes of this module."""

    area: str
    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.area}: {self.name}"

    def applied_to(self, text: str) -> str:
        """The text of the file with the mistake in it."""
        found = text.count(self.before)
        if found != 1:
            raise TableError(f"{self}: its text occurs {found} times in {self.file}, and should once:\n{self.before}")
        return text.replace(self.before, self.after)


@dataclass(frozen=True)
class Outcome:
    """What became of a mistake, and the end of what pytest said."""

    mistake: Mistake
    verdict: str
    seconds: float
    said: str


def read_tables(folder: Path) -> list[Mistake]:
    """All mistakes, checked against the source as it is."""
    mistakes = []
    for path in sorted(folder.glob("*.toml")):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        for entry in table["mistake"]:
            unknown = entry.keys() - {"name", "file", "before", "after", "tests"}
            if unknown:
                raise TableError(f"{path.name}: unknown entries {sorted(unknown)} of {entry.get('name')!r}")
            tests = tuple(entry.get("tests", table.get("tests", ())))
            mistake = Mistake(table["area"], entry["name"], entry["file"], entry["before"], entry["after"], tests)
            mistake.applied_to((ROOT / mistake.file).read_text(encoding="utf-8"))
            if mistake.before == mistake.after or not tests:
                raise TableError(f"{mistake}: it changes nothing, or has no tests")
            mistakes.append(mistake)
    for name, count in Counter(map(str, mistakes)).items():
        if count > 1:
            raise TableError(f"{name}: {count} mistakes have this name")
    return mistakes


def changed_since(revision: str) -> set[str]:
    """Files that are not as they were in a git revision."""
    command = ["git", "diff", "--name-only", revision, "--"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode:
        raise TableError(found.stderr.strip())
    return set(found.stdout.splitlines())


@contextmanager
def copy_of_source() -> Iterator[Path]:
    """A folder with what the tests need, without the history; compiled files keep their times and stay valid."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for part in COPIED:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("*.egg-info"))
            else:
                shutil.copy2(source, folder / part)
        yield folder


def run_tests(folder: Path, tests: Sequence[str]) -> tuple[int | None, str]:
    """Pytest's exit status (None if it did not finish in time) and the end of what it said."""
    output = folder / "output.txt"
    process = FORKS.Process(target=pytest_in, args=(folder, list(tests), output))
    process.start()
    process.join(SECONDS * len(tests))
    if process.is_alive():
        process.kill()
        process.join()
        return None, "they did not finish in time"
    return process.exitcode, output.read_text(encoding="utf-8", errors="replace")[-3000:]


def pytest_in(folder: Path, tests: list[str], output: Path) -> None:
    """In a process of its own, which has the large libraries but not sureshot: run the tests of a copy."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.chdir(folder)
    source = str(folder / "src")
    sys.path.insert(0, source)
    os.environ["PYTHONPATH"] = source  # for processes that tests start
    import pytest

    status = pytest.main(["-x", "-q", "--tb=line", "-m", "", *tests])  # slow ones too
    sys.stdout.flush()
    imported = sys.modules.get("sureshot")
    if imported is None or not Path(str(imported.__file__)).is_relative_to(folder):
        print(f"the tests imported {imported}, not the copy")
        status = NOT_THE_COPY
    sys.exit(int(status))


def present(tests: Iterable[str]) -> list[str]:
    """The tests whose files are there."""
    return [test for test in tests if (ROOT / test.partition("::")[0]).exists()]


def check_unchanged(mistakes: Sequence[Mistake], jobs: int) -> None:
    """The named tests of every area pass on the source as it is."""
    selections: dict[str, dict[str, None]] = {}
    for mistake in mistakes:
        selections.setdefault(mistake.area, {}).update(dict.fromkeys(present(mistake.tests)))

    def check(area: str) -> None:
        with copy_of_source() as folder:
            status, said = run_tests(folder, without_repeats(selections[area])) if selections[area] else (0, "")
        if status != 0:
            raise TableError(f"the tests of {area} do not pass on the unchanged source:\n{said}")

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(check, selections))


def without_repeats(tests: Iterable[str]) -> list[str]:
    """The tests without those that a whole file among them has anyway."""
    listed = list(tests)
    return [test for test in listed if "::" not in test or test.partition("::")[0] not in listed]


def try_out(mistake: Mistake) -> Outcome:
    """Make the mistake in a fresh copy and run its tests."""
    begin = time.monotonic()
    with copy_of_source() as folder:
        changed = folder / mistake.file
        changed.write_text(mistake.applied_to(changed.read_text(encoding="utf-8")), encoding="utf-8")
        for compiled in (changed.parent / "__pycache__").glob(f"{changed.stem}.*.pyc"):
            compiled.unlink()
        tests = present(mistake.tests)
        status, said = run_tests(folder, tests) if tests else (0, "none of its tests is there")
    verdict = {0: SURVIVED, 1: CAUGHT, None: TIMED_OUT}.get(status, BROKEN)
    return Outcome(mistake, verdict, time.monotonic() - begin, said)


def report(outcomes: Sequence[Outcome]) -> float:
    """Print the table by area; the share that was caught."""
    areas = list(dict.fromkeys(outcome.mistake.area for outcome in outcomes))
    width = max(map(len, [*areas, "all"]))
    print()
    for area in [*areas, "all"]:
        of_area = [outcome for outcome in outcomes if area in (outcome.mistake.area, "all")]
        caught = sum(outcome.verdict == CAUGHT for outcome in of_area)
        print(f"{area:<{width}}  {caught:>3} of {len(of_area):>3}  {caught / len(of_area):>5.0%}")
    missed = [outcome for outcome in outcomes if outcome.verdict != CAUGHT]
    if missed:
        print("\nnot caught:")
    for outcome in missed:
        print(f"  {outcome.verdict:<9}  {outcome.mistake}  ({outcome.mistake.file})")
        if outcome.verdict == BROKEN:
            print(outcome.said)
    return 1 - len(missed) / len(outcomes)


def caught_names(outcomes: Iterable[Outcome]) -> list[str]:
    """Of the mistakes that were caught."""
    return [str(outcome.mistake) for outcome in outcomes if outcome.verdict == CAUGHT]


def differences(outcomes: Sequence[Outcome], earlier: Sequence[str]) -> list[str]:
    """Which mistakes fare otherwise than in an earlier run, which caught those of these names."""
    caught = caught_names(outcomes)
    lost = [f"no longer caught: {o.mistake}" for o in outcomes if str(o.mistake) in earlier and o.verdict != CAUGHT]
    return lost + [f"caught now, not before: {name}" for name in caught if name not in earlier]


def main() -> int:
    """Run the command line; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="PART", help="mistakes with this in their name, area or file")
    parser.add_argument("--change", metavar="REV", help="mistakes whose file or tests changed since a git revision")
    parser.add_argument("--against", type=Path, metavar="FILE", help="say what differs from those caught in this file")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the names of those that are caught")
    parser.add_argument("--list", action="store_true", help="print the mistakes and stop")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time (default 1)")
    arguments = parser.parse_args()
    try:
        part = arguments.only.lower()
        mistakes = [m for m in read_tables(TABLES) if part in f"{m} {m.file}".lower()]
        if not mistakes:
            raise TableError(f"no mistake has {arguments.only!r} in its name, area or file")
        if arguments.change is not None:
            changed = changed_since(arguments.change)
            mistakes = [m for m in mistakes if changed & {m.file, *(test.partition("::")[0] for test in m.tests)}]
            if not mistakes:
                print(f"no file or test of these mistakes was changed since {arguments.change}")
                return 0
        earlier = arguments.against.read_text(encoding="utf-8").splitlines() if arguments.against else None
        for test in sorted({test for m in mistakes for test in m.tests if test not in present(m.tests)}):
            print(f"there is no {test.partition('::')[0]}: its tests are left out", file=sys.stderr)
        if arguments.list:
            for mistake in mistakes:
                print(f"{mistake}  ({mistake.file}: {' '.join(mistake.tests)})")
            return 0
        os.environ["OMP_NUM_THREADS"] = "1"
        os.environ.pop("SURESHOT_DATA", None)  # tests on real data take long
        FORKS.set_forkserver_preload(PRELOADED)
        check_unchanged(mistakes, arguments.jobs)
        outcomes = []
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for outcome in pool.map(try_out, mistakes):
                print(f"{outcome.verdict:<9}  {outcome.seconds:>4.0f} s  {outcome.mistake}", flush=True)
                outcomes.append(outcome)
    except TableError as error:
        print(error, file=sys.stderr)
        return 2
    share = report(outcomes)
    if earlier is not None:
        print(f"\nagainst {arguments.against}:", *(differences(outcomes, earlier) or ["no difference"]), sep="\n  ")
    if arguments.write:
        arguments.write.write_text("".join(f"{name}\n" for name in caught_names(outcomes)), encoding="utf-8")
    return 0 if share >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
