"""The page of ``search``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sureshot.cli.searched import SCORES, Rows, columns_named, evidence_and_error, meaning_of_evidence
from sureshot.estimators import KernelSearchClassifier, SearchStep
from sureshot.evaluation.streams import BatchScores, pooled_reliability
from sureshot.report import Picture, Predictions, Report, Table, environment, write_report
from sureshot.report.content import reliability_picture
from sureshot.report.search_plots import class_map, genealogy, particle_health, particle_maps, posterior_over_time
from sureshot.structure.canonical import canonical
from sureshot.structure.grammar import split_symbol
from sureshot.structure.structure import Structure

if TYPE_CHECKING:
    from sureshot.report.content import Cell

_GRID, _PARTICLE_GRID = 120, 60
_MOST_PARTICLES = 8
_MOST_STRUCTURES = 15


def write_search_page(
    model: KernelSearchClassifier,
    rows: Rows,
    stream: Sequence[BatchScores],  # of the parts before they were learnt; empty where rows came together
    summary: dict[str, Any],
    folder: Path,
    title: str,
    command: str,
) -> Path:
    """Write ``report.html``."""
    predictions = None
    if rows.test is not None:
        X = rows.test.X
        predictions = Predictions(
            model.predict_proba(X),
            model.classes_,
            y=rows.test.y,
            outlier_score=model.outlier_score(X),
            row_names=rows.test.row_ids,
        )
    report = Report(
        title=title,
        introduction=(
            f"{len(model.kernel_posterior_)} structures of kernels, held by {model.n_particles} particles after "
            f"{summary['rows']} rows, {summary['kept']} of them kept, in {len(model.steps_)} batches. Log-evidence "
            f"{evidence_and_error(summary)} nats, {meaning_of_evidence(summary)}.{_columns(summary)}"
        ),
        summary=_scores(summary),
        predictions=predictions,
        tables=tuple(_tables(model, summary)),
        pictures=(*_calibration(stream), *_pictures(model)),
        model=summary["settings"],
        environment=environment(),
        command=command,
    )
    return write_report(folder, report)


def _columns(summary: dict[str, Any]) -> str:
    """Which columns structures name by number, as a sentence."""
    named = [f"{number} is {name}" for number, name in columns_named(summary)]
    return f" In kernels {', '.join(named)}." if named else ""


def _scores(summary: dict[str, Any]) -> Table | None:
    if "scores" not in summary:
        return None
    table = {"kernel search": summary["scores"], "class frequencies": summary.get("baseline", {})}
    return Table(
        ("rows that were not learnt", *SCORES.values()),
        tuple((name, *(one.get(score) for score in SCORES)) for name, one in table.items()),
        better=(None, "higher", *["lower" for _ in list(SCORES)[1:]]),  # type: ignore[arg-type]
        note="Class frequencies answer every row with the shares of the classes among the rows that were learnt.",
        heading="Beside no knowledge of the columns",
    )


def _tables(model: KernelSearchClassifier, summary: dict[str, Any]) -> list[Table]:
    posterior: Sequence[tuple[float, str]] = model.kernel_posterior_
    tables = [
        Table(
            ("kernel", "mass"),
            tuple((structure, mass) for mass, structure in posterior[:_MOST_STRUCTURES]),
            note="Structures that can be the same kernels are one. Masses are those of the particles, so none is below "
            "what a particle weighs; a search with more particles is more certain of them.",
            heading="Kernels after the last batch"
            if len(posterior) <= _MOST_STRUCTURES
            else f"The {_MOST_STRUCTURES} heaviest of {len(posterior)} kernels after the last batch",
        ),
        Table(
            ("batch", "rows kept", "effective sample size", "resampled", "log-evidence (nats)", "heaviest", "mass"),
            tuple(
                (
                    number,
                    batch["rows"],
                    ", ".join(f"{size:.1f}" for size in batch["effective_sample_sizes"]),
                    "yes" if batch["resampled"] else "no",
                    round(batch["log_evidence"], 2),
                    batch["structure"],
                    batch["mass"],
                )
                for number, batch in enumerate(summary["batches"], 1)
            ),
            note="Several effective sample sizes: the batch was too much at once and was divided.",
            heading="Batch by batch",
        ),
    ]
    if "stream" in summary:
        lines: list[tuple[Cell, ...]] = [
            (
                number,
                part["rows"],
                part.get("accuracy"),
                part.get("nll"),
                ", ".join(map(str, part["new_classes"])) or None,
            )
            for number, part in enumerate(summary["stream"], 2)
        ]
        tables.append(
            Table(
                ("part", "rows", "accuracy", "NLL (nats)", "new classes"),
                tuple(lines),
                note="Each part of the stream as it was predicted by what had been learnt until then; rows of classes "
                "that were new are left out.",
                heading="Predicted before it was learnt",
            )
        )
    return tables


def _calibration(stream: Sequence[BatchScores]) -> list[Picture]:
    """Of what was predicted of the parts of a stream."""
    curve, which = pooled_reliability(stream), "Of all parts of the stream but the first. "
    return [] if curve is None else [reliability_picture("Reliability before rows were learnt", curve, which)]


def _pictures(model: KernelSearchClassifier) -> list[Picture]:
    steps = model.steps_
    masses = [{structure: mass for mass, structure in step.structures} for step in steps]
    moves = list(dict.fromkeys(move for step in steps for move in step.acceptance))
    pictures = [
        Picture(
            "Kernels, batch by batch",
            posterior_over_time(masses, _leaves(masses)),
            "Stacked posterior masses of structures after each batch, and the probability of each leaf",
            "Left, what the particles weigh together that have a structure, heaviest below. Right, how probable it is "
            "that a leaf is anywhere in the kernel: steadier than whole structures, of which many say nearly the same.",
        ),
        Picture(
            "Particles",
            particle_health(
                [step.effective_sample_sizes for step in steps],
                [step.resampled for step in steps],
                {move.replace("_", " "): [step.acceptance.get(move, np.nan) for step in steps] for move in moves},
                model.n_particles,
            ),
            "Effective sample size and acceptance rates after each batch",
            "Left, how many particles the weights are worth; below the dashed line they are resampled. Always near 1: "
            "more particles, or smaller batches. Right, the moves of structures; all near 0: more sweeps are needed "
            "to follow the data.",
        ),
        Picture(
            "Where particles come from",
            genealogy(np.array([step.ancestors for step in _of_these_particles(steps)])),
            "Lines from each particle to its ancestor in the batch before",
            "Dark lines lead to today's particles. One ancestor for all is no error, as moves tell its children "
            "apart, but it says that the first batches decided much.",
        ),
    ]
    in_the_plane = model.n_features_in_ == 2 and not hasattr(model, "encoder_")
    return pictures + (_maps(model) if in_the_plane and len(model.classes_) > 1 else [])


def _of_these_particles(steps: Sequence[SearchStep]) -> Sequence[SearchStep]:
    """The steps since particles were drawn: where rows were of one class for a while, they are drawn anew."""
    waited = [place for place, step in enumerate(steps) if step.waits]
    return steps[waited[-1] :] if waited else steps


def _leaves(batches: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    """The mass of the structures that have a leaf, after each batch."""
    found: dict[str, list[float]] = {}
    for number, masses in enumerate(batches):
        for text, mass in masses.items():
            structure = Structure.parse(text)
            for name in {split_symbol(structure.symbols[leaf])[0] for leaf in structure.leaves}:
                found.setdefault(name, [0.0] * len(batches))[number] += mass
    return dict(sorted(found.items(), key=lambda pair: -pair[1][-1]))


def _maps(model: KernelSearchClassifier) -> list[Picture]:
    """Of a model of two columns, the average of all particles and the heaviest particle of each heavy structure."""
    x, y, n_classes = model.X_train_, np.searchsorted(model.classes_, model.y_train_), len(model.classes_)
    named = hasattr(model, "feature_names_in_")
    names = [str(name) for name in model.feature_names_in_] if named else ["first column", "second column"]
    extent = _extent(x)

    def grid(size: int) -> Any:
        across, up = np.meshgrid(np.linspace(*extent[:2], size), np.linspace(*extent[2:], size))
        points = np.stack([across.ravel(), up.ravel()], -1)
        return pd.DataFrame(points, columns=model.feature_names_in_) if named else points

    whole = model.predict_proba(grid(_GRID)).reshape(_GRID, _GRID, n_classes)
    forms = [str(canonical(Structure.parse(particle.structure))) for particle in model.particles_]
    shown = [(mass, form, forms.index(form)) for mass, form in model.kernel_posterior_[:_MOST_PARTICLES]]
    alone = model.particle_proba(grid(_PARTICLE_GRID))[[place for _, _, place in shown]]
    return [
        Picture(
            "What is predicted",
            class_map(whole, extent, x, y, model.classes_, names),
            "Class probabilities in the plane of the two columns, with the rows that were learnt",
            "The average over all particles; the paler, the less sure. Lines are at probabilities of 1/4, 1/2 and 3/4, "
            "or where two of several classes are equally probable.",
        ),
        Picture(
            "What single kernels predict",
            particle_maps(
                alone.reshape(len(shown), _PARTICLE_GRID, _PARTICLE_GRID, n_classes),
                extent,
                [f"{mass:.2f} {_short(form)}" for mass, form, _ in shown],
                x,
                y,
            ),
            "The same for a particle of each of the heaviest structures",
            "The heaviest structures, each with its mass and one of its particles; names of leaves are shortened. "
            "Where they disagree, their average above is unsure.",
        ),
    ]


def _extent(x: np.ndarray) -> tuple[float, float, float, float]:
    """The part of the plane that is shown: all rows, but for those that lie far off."""
    low, high = np.quantile(x, [0.02, 0.98], axis=0)
    spread = high - low
    low, high = np.maximum(x.min(0), low - spread), np.minimum(x.max(0), high + spread)
    margin = 0.15 * np.where(high > low, high - low, 1.0)
    (left, bottom), (right, top) = (low - margin).tolist(), (high + margin).tolist()
    return left, right, bottom, top


def _short(structure: str) -> str:
    """With the first letters of the leaves: LIN for LINEAR, SE for SQUARED-EXPONENTIAL."""

    def letters(leaf: re.Match[str]) -> str:
        parts = leaf.group().split("-")
        return parts[0][:3] if len(parts) == 1 else "".join(part[0] for part in parts)

    return re.sub(r"[A-Z][A-Z-]+", letters, structure)
