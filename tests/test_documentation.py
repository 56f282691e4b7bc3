"""The Python of the documentation runs, and what it links to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUNS = (
    "README.md",
    "docs/corrections.md",
    "docs/decisions.md",
    "docs/few-shot.md",
    "docs/incremental.md",
    "docs/mixed-tables.md",
    "docs/model-files.md",
    "docs/neural-processes.md",
    "docs/own-parts.md",
    "docs/pipelines.md",
    "docs/sessions.md",
    "docs/structure-discovery.md",
    "docs/what-to-label.md",
)
"""Pages whose Python needs no files of the reader's; the blocks of a page share their names."""

FEWER = {"n_particles=8": "n_particles=2", '"episodes": 80': '"episodes": 40', "n_tasks=100": "n_tasks=20"}
"""What a reader would take, and what is enough to see that it runs."""

LONG = ("docs/few-shot.md", "docs/structure-discovery.md")
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.filterwarnings("ignore:ignored .* constant columns:UserWarning")
@pytest.mark.parametrize("page", [pytest.param(page, marks=[pytest.mark.slow] * (page in LONG)) for page in RUNS])
def test_python_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text(encoding="utf-8")
    for given, enough in FEWER.items():
        text = text.replace(given, enough)
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert blocks
    names: dict[str, object] = {"__name__": "documentation"}
    for block in blocks:
        exec(compile(block, page, "exec"), names)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    missing = [
        target for target in targets if "://" not in target and not ((ROOT / page).parent / target).resolve().exists()
    ]
    assert not missing
