"""Gaussian processes in one column: the pictures of a lecture, by the classes of this library.

Weight space and function space, prior and posterior, what scales do, evidence as fit and complexity, and every
approximation beside the exact posterior with what is known to go wrong: on a function drawn from the kernel that all
are given, so that what differs is the approximation.

References: Rasmussen & Williams 2006, chapters 2, 5 and 8; Quinonero-Candela & Rasmussen 2005; Bauer, van der Wilk &
Rasmussen 2016; Lazaro-Gredilla et al. 2010.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from experiments import gp_basics_figures as figures
from experiments.experiment import Experiment, Outcome, Picture, Progress, Table, Verdict, configure
from experiments.gp_basics_figures import Scores
from experiments.gp_basics_study import (
    FAR,
    GAP,
    REACH,
    SHOWN,
    STEP,
    Settings,
    compared,
    covariance_from_zero,
    drawn,
    evenly,
    grid,
    made,
    rbf,
    scored,
    scores_of,
    seeded,
    sparse_spectra,
    stages,
    views,
)
from experiments.gp_posteriors import MAPS, N_NEIGHBOURS, PLACED, Budget, answers, basis_of, exact_answer, learnt_answer

RW = "Rasmussen & Williams 2006"


def run(*, data_root: Path | None = None, progress: Progress, **options: Any) -> Outcome:
    """Make the page; see `Settings` for the options."""
    settings = configure(Settings, options)
    data, shown = made(settings), grid(SHOWN)
    task, axis = data.task, shown[:, 0].numpy()
    budget = Budget(evenly(settings.n_inducing), settings.n_features, settings.n_neighbours, settings.seed)

    progress("two views", 0.0)
    small = grid(REACH)
    both, both_table = views(settings, small)
    scales = {
        (amplitude, lengthscale): drawn(rbf(lengthscale, amplitude), shown, 3, seeded(settings.seed)).numpy()
        for amplitude in (0.5, 1.0, 2.0)
        for lengthscale in (0.3, 1.0, 3.0)
    }

    progress("evidence", 0.2)
    scores = scored(task, torch.logspace(-1.5, 1.0, 126, dtype=torch.float64))
    best = float(scores.lengthscale[scores.evidence.argmax()])
    fits = {
        f"{what}: {value:.2g}": exact_answer(replace(task, kernel=rbf(value))).at(shown)
        for what, value in (("too short", best / 8), ("most evidence", best), ("too long", best * 5))
    }

    progress("approximations", 0.3)
    exact = exact_answer(task)
    found = answers(task, budget)
    learns = {name: basis_of(name, task, budget) for name in (*MAPS, *PLACED)}
    learns = {name: basis for name, basis in learns.items() if basis.learnt}
    learnt = {name: learnt_answer(task, basis, settings.steps, settings.seed) for name, basis in learns.items()}
    found |= {name: answer for name, answer in learnt.items() if name in MAPS}
    moved = {name: answer for name, answer in learnt.items() if name in PLACED}
    table, moved_table = compared(task, found, data), compared(task, moved, data)

    progress("noise", 0.6)
    noises: dict[str, list[float]] = {"fitc": [], "vfe": []}
    for name, values in noises.items():
        for count in settings.inducing_counts:
            basis = basis_of(name, task, replace(budget, inputs=evenly(count)))
            values.append(learnt_answer(task, basis, settings.steps, settings.seed).noise ** 0.5)

    progress("frequencies", 0.7)
    spectra, most = sparse_spectra(settings, data)
    reference = dict(zip(("evidence", "left-out rows", "other rows"), scores_of(exact, data), strict=True))

    wide = grid(FAR)
    inputs = {name: budget.inputs[:, 0].numpy() for name in PLACED}
    far_names = ("random_features", "ssgp", "sor", "fitc")
    distance = torch.linspace(0, FAR, 481, dtype=torch.float64)[:, None]
    covariances = {
        f"{count} frequencies": covariance_from_zero(
            basis_of("random_features", task, replace(budget, n_features=2 * count)), distance
        )
        for count in (3, settings.n_features // 2, 100)
    }
    fitc = basis_of("fitc", task, budget)
    left = fitc.prior(shown, shown.new_zeros(())).residual
    assert left is not None
    within = np.abs(axis) <= REACH
    own = (left.numpy() + task.noise) ** 0.5

    pictures = (
        Picture(
            "two-views",
            "One model twice. Left: weights are drawn, and each makes a function. Middle: the function's values are "
            "drawn from the kernel's matrix, and no weights appear. Single functions differ, but the covariance of any "
            "two values is the same (right), so these are the same distribution over functions.",
            figures.draw_views(small[:, 0].numpy(), both),
        ),
        Picture(
            "prior-posterior",
            "Before any rows the band (mean and two deviations) is equally wide everywhere. Rows pull functions "
            "towards them; between and beyond rows the draws still go their own ways, and the band opens again.",
            figures.draw_conditioning(axis, stages(data, shown, settings.seed)),
        ),
        Picture(
            "scales",
            "Draws of the prior. The length-scale says how far one must go for the function to forget where it was, "
            "the amplitude how far from zero it goes: down a column the same functions are only taller.",
            figures.draw_scales(axis, scales),
        ),
        Picture(
            "evidence",
            "Short length-scales fit everything and pay for it, as they could have fitted anything else too; long ones "
            "are simple and miss the rows. Their sum, the evidence, is largest between, here near the length-scale "
            f"{settings.lengthscale:g} that the rows were drawn with; so are left-out rows most probable. Below: the "
            "posterior at an eighth of the best length-scale, at the best, and at five times it.",
            figures.draw_evidence(axis, scores, fits, data.rows),
        ),
        Picture(
            "approximations",
            "Each approximation (orange, band outlined) over the exact posterior (blue); triangles are inducing "
            "inputs. All have the kernel and the noise that the rows were drawn with, but `ssgp` and `a_la_carte` have "
            "moved their frequencies and their noise by the evidence. Frequencies follow the rows, are too sure in the "
            "gap, and go on beyond. Between inducing inputs, two length-scales apart, `inducing`, `fitc`, `vfe` and "
            "`svgp` say that they do not know, and `sor` does not. `nearest_neighbours` is nearly exact, and jumps "
            "in the gap where other rows become the nearest. `iterative`, `toeplitz`, `kronecker` and `kiss` are the "
            "exact posterior by other algebra, and hide its mean; `kiss` interpolates, by ten nodes in a length-scale.",
            figures.draw_posteriors(
                axis, exact.at(shown), {name: one.at(shown) for name, one in found.items()}, data.rows, inputs
            ),
        ),
        Picture(
            "far",
            "The same, farther from the rows. A few frequencies repeat themselves: their means never come back to zero "
            "and they are sure where there are no rows. The deviation of `sor` is zero there: it is surest where it "
            "knows least. `fitc` comes back to the prior, as the exact posterior does.",
            figures.draw_posteriors(
                wide[:, 0].numpy(),
                exact.at(wide),
                {name: found[name].at(wide) for name in far_names},
                data.rows,
                inputs,
                columns=2,
            ),
        ),
        Picture(
            "wrap-around",
            "Why: by the kernel, values far apart have nothing to do with each other. By features of a few frequencies "
            "the covariance comes back again and again; more frequencies make these echoes smaller, about as one over "
            "the root of their number, but never zero.",
            figures.draw_covariances(
                distance[:, 0].numpy(), task.kernel(distance[:1], distance)[0].numpy(), covariances
            ),
        ),
        Picture(
            "noise",
            "Left: what inducing inputs do not see, FITC takes for noise of each row, so that rows between them count "
            "little. Right: evidence learns noise and inputs. FITC learns less noise than there is, as this variance "
            "of single rows does its work; `vfe` with few inputs calls noise what these cannot follow; with "
            f"{settings.inducing_counts[-1]} it finds {noises['vfe'][-1]:.2f}, where {settings.noise:g} is true.",
            figures.draw_noise(
                axis[within], own[within], inputs["fitc"], settings.noise, noises, settings.inducing_counts
            ),
        ),
        Picture(
            "overfitting",
            "Frequencies that evidence learns are many numbers, and evidence does not protect against them: it rises "
            "above that of the kernel which the rows were drawn with, and left-out rows look better than they are, as "
            "they were there when frequencies were chosen. Other rows of the same function (pink) tell. Right: one "
            "such posterior.",
            figures.draw_overfitting(
                settings.frequency_counts,
                {name: (spectra[name].tolist(), reference[name]) for name in reference},
                axis,
                exact.at(shown),
                most.at(shown),
                data.rows,
            ),
        ),
    )
    return Outcome(
        title="Gaussian processes in one column",
        introduction=(
            f"The pictures of a first lecture, made by the classes of this library. {settings.n_rows} rows are a "
            f"function drawn from an RBF kernel of length-scale {settings.lengthscale:g} and amplitude 1, with noise "
            f"of deviation {settings.noise:g}; x is within [-{REACH:g}, {REACH:g}], and from {GAP[0]:g} to {GAP[1]:g} "
            f"there are no rows; rows are on a grid of steps of {STEP:g}, most of whose points have none. "
            "Approximations get that kernel and that noise. "
            f"Inducing inputs: {settings.n_inducing}, evenly spaced; frequencies: {settings.n_features // 2}, thus "
            f"{settings.n_features} features; nearest neighbours: {settings.n_neighbours}."
        ),
        tables=(
            Table(
                "two-views",
                "Models that are linear in features, in weight space and in function space. "
                "`features' products less kernel` is the largest difference between `Phi Phi'` and the kernel's "
                "matrix; "
                f"the last two columns are how far covariances of {settings.samples:,} draws are from that matrix, as "
                "a share of it.",
                both_table,
                digits=4,
            ),
            Table(
                "approximations",
                "Largest differences from the exact posterior's mean and deviation, within the range of the rows "
                f"(inside) and from there to {FAR:g} (outside), where the prior's deviation is 1; the deviation at "
                f"{FAR:g} itself; the noise; log evidence of all rows, or the bound in its place (`vfe`, `svgp`), "
                "beside the exact one of the same kernel and noise; mean log densities of left-out rows, and of "
                f"{len(data.y_test)} others. Nearest neighbours have no evidence. Deviations by products "
                f"(`iterative` to `kiss`) are those given the nearest {N_NEIGHBOURS} rows, here all.",
                table,
            ),
            Table(
                "learnt",
                "The same, where inducing inputs and noise have moved by the evidence or the bound, under the kernel "
                "as it was. The first row has the noise of the data. Where next to no noise is learnt, the exact "
                "kernel of so little cannot explain the rows.",
                moved_table,
            ),
            Table(
                "noise",
                "Noise (deviation) that evidence learns, with the inputs, by the number of inducing inputs.",
                pd.DataFrame({"inducing inputs": settings.inducing_counts, **noises}),
            ),
            Table(
                "frequencies",
                f"Learnt frequencies (`ssgp`), means of {settings.draws} draws, in nats a row; the exact kernel has "
                + ", ".join(f"{name} {value:.3f}" for name, value in reference.items())
                + ".",
                spectra,
            ),
        ),
        pictures=pictures,
        verdicts=judge(
            both_table, scores, table, moved_table, spectra, {**reference, "total": exact.evidence}, settings
        ),
        findings=(
            f"The exact log evidence is {exact.evidence:.2f} nats. `inducing` and `sor` have the same means and "
            "evidence; they differ in what they say of their own doubt. As placed `svgp` is `vfe`: they differ where "
            "batches of rows have moved inputs and noise.",
        ),
        config=settings,
        seeds=(settings.seed,),
    )


def _cell(table: pd.DataFrame, name: str, column: str) -> float:
    return float(table.loc[table["approximation"] == name, column].iloc[0])


def judge(
    both: pd.DataFrame,
    scores: Scores,
    table: pd.DataFrame,
    moved: pd.DataFrame,
    spectra: pd.DataFrame,
    reference: Mapping[str, float],
    settings: Settings,
) -> tuple[Verdict, ...]:
    """What the books say, by the numbers."""
    bounds = [
        (_cell(one, name, "evidence"), _cell(one, name, "exact evidence"))
        for one in (table, moved)
        for name in ("vfe", "svgp")
    ]
    best, best_left_out = (float(scores.lengthscale[part.argmax()]) for part in (scores.evidence, scores.left_out))
    end = {name: _cell(table, name, "deviation at the end") for name in ("sor", "fitc", "vfe", "random_features")}
    outside = {name: _cell(table, name, "mean, outside") for name in ("random_features", "fitc")}
    loose = {name: _cell(moved, name, "evidence") for name in ("sor", "fitc")}
    noise = {name: _cell(moved, name, "noise") for name in ("fitc", "vfe")}
    last = spectra.iloc[-1]
    return (
        Verdict(
            "weights and kernel make the same distribution over functions (rule: matrices equal to 1e-12, covariances "
            "of draws to 5 %)",
            f"{RW}, 2.1 and 2.2",
            "matrices "
            + ", ".join(both["features' products less kernel"])
            + "; draws "
            + ", ".join(f"{value:.1%}" for value in both[["weights' draws", "kernel's draws"]].to_numpy().ravel()),
            bool(
                (both["features' products less kernel"].astype(float) < 1e-12).all()
                and (both[["weights' draws", "kernel's draws"]] < 0.05).all(axis=None)
            ),
        ),
        Verdict(
            "the evidence finds the length-scale by fit and complexity (rule: within a factor of 1.5; fit falls and "
            "complexity rises from the shortest to the longest)",
            f"{RW}, 5.4.1",
            f"most evidence at {best:.2f}, left-out rows most probable at {best_left_out:.2f}, drawn with "
            f"{settings.lengthscale:g}",
            bool(
                1 / 1.5 < best / settings.lengthscale < 1.5
                and scores.fit[-1] < scores.fit[0]
                and scores.complexity[-1] > scores.complexity[0]
            ),
        ),
        Verdict(
            "the variance of SoR goes to zero away from its inputs (rule: deviation below a hundredth of the prior's; "
            "those of FITC and VFE above 99 hundredths)",
            "Quinonero-Candela & Rasmussen 2005, section 4",
            f"deviation at {FAR:g}: " + ", ".join(f"{name} {value:.3f}" for name, value in end.items()),
            end["sor"] < 0.01 and min(end["fitc"], end["vfe"]) > 0.99,
        ),
        Verdict(
            "the variational bound is never above the evidence (rule: so for vfe and svgp, before and after learning)",
            "Titsias 2009, section 3",
            ", ".join(f"{bound:.2f} of {evidence:.2f}" for bound, evidence in bounds),
            all(bound <= evidence + 1e-6 for bound, evidence in bounds),
        ),
        Verdict(
            "the evidence of SoR and FITC is no bound (rule: with learnt inputs and noise above the exact one of the "
            "data's noise)",
            "Titsias 2009, section 2",
            ", ".join(f"{name} {value:.2f}" for name, value in loose.items()) + f", exact {reference['total']:.2f}",
            min(loose.values()) > reference["total"],
        ),
        Verdict(
            "with few inputs FITC learns too little noise, and VFE too much (rule: below and above the data's)",
            "Bauer et al. 2016, section 3.1",
            f"fitc {noise['fitc']:.3f}, vfe {noise['vfe']:.3f}, data {settings.noise:g}",
            noise["fitc"] < settings.noise < noise["vfe"],
        ),
        Verdict(
            "a few random frequencies repeat themselves far from the rows (rule: the mean there is off by half the "
            "prior's deviation and by more than that of FITC)",
            "Lazaro-Gredilla et al. 2010",
            f"largest difference of mean outside: random_features {outside['random_features']:.2f}, fitc "
            f"{outside['fitc']:.2f}",
            outside["random_features"] > max(0.5, outside["fitc"]),
        ),
        Verdict(
            "many learnt frequencies overfit (rule: more evidence than the kernel that the rows were drawn with, and "
            "other rows less probable than by it)",
            "Lazaro-Gredilla et al. 2010",
            f"with {last['frequencies']:.0f}: evidence {last['evidence']:.3f} beside {reference['evidence']:.3f}, "
            f"other rows {last['other rows']:.3f} beside {reference['other rows']:.3f} nats a row",
            bool(last["evidence"] > reference["evidence"] and last["other rows"] < reference["other rows"]),
        ),
    )


EXPERIMENT = Experiment(
    "gp-basics",
    "the pictures of a lecture on Gaussian processes in one column, and each approximation beside the exact posterior",
    needs_data=False,
    run=run,
)
