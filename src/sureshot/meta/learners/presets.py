"""The settings of every Gaussian-process learner, by name and preset.

========================= ==========================================================================
preset                    what it is
========================= ==========================================================================
``paper``                 what the paper's text says
``released-code``         what the code released with it does instead, where that differs
``recommended``           ours, chosen on validation classes (see docs/few-shot.md)
========================= ==========================================================================

A setting that a preset does not name has the default of `GaussianProcessSettings`. To add a learner, add its rows
here; `registry` builds it.

CDKT (``cdkt_*``) is warm in both presets of its paper: tasks start where those of the step before ended. Its two steps
from the prior, in the usual order of the updates, are an ablation: ``preset="paper", warm_start=False,
covariance_first=False``.

References: Snell & Zemel 2021, appendices G and H; Ke et al. 2023, section 5 and appendices VII and
VIII; Patacchiola et al. 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, get_args, get_type_hints

from sureshot.data.checks import near
from sureshot.data.typed_values import typed_value
from sureshot.likelihoods.logistic_softmax import Augmentation
from sureshot.likelihoods.one_vs_each import Normalisation
from sureshot.meta.learners.gibbs_inference import Start
from sureshot.meta.learners.gp import Objective, PredictiveSplit
from sureshot.meta.learners.prediction import TaskRule
from sureshot.meta.learners.task_kernel import Scale

Preset = Literal["recommended", "paper", "released-code"]
PRESETS: tuple[str, ...] = get_args(Preset)

InferenceName = Literal["mean_field", "gibbs", "exact"]
LikelihoodName = Literal["one_vs_each", "logistic_softmax", "least_squares"]
PredictiveLikelihood = Literal["own", "softmax", "logistic_softmax"]


@dataclass(frozen=True)
class GaussianProcessSettings:
    """Every switch of a Gaussian-process learner."""

    likelihood: LikelihoodName = "one_vs_each"
    inference: InferenceName = "mean_field"
    objective: Objective = "predictive"
    n_steps: int = 10  # of mean field in training
    n_steps_prediction: int = 30  # and in use
    # Of mean field in training; see `sureshot.meta.learners.mean_field.TaskMeanField`.
    detach_inner: bool = False
    tolerance: float | None = None
    warm_start: bool = False
    covariance_first: bool = False
    # Of "poisson_gamma" in training; see `TaskMeanField` for the first and `sureshot.likelihoods.LogisticSoftmax`.
    random_shapes: bool = False  # the first ones between 5 and 10 in place of 1 + C / 2
    detach_tilting: bool = False
    released_bound: bool = False
    pairs_per_row: float | None = None  # see `sureshot.meta.learners.mean_field.TaskMeanField`
    augmentation: Augmentation = "negative_multinomial"  # of the logistic-softmax by mean field
    # How the rule "integral" makes probabilities of one-vs-each; see `sureshot.likelihoods.OneVsEach`.
    normalisation: Normalisation = "expected_likelihood"
    n_chains: int = 20  # of Gibbs sampling
    n_sweeps: int = 1  # in training
    n_sweeps_prediction: int = 50  # in use
    # Where chains start, in training by marginal likelihood and in use. From the prior with one sweep the gradient in
    # the output scale has the wrong sign at moderate scales.
    start: Start = "prior"
    temperature: float = 1.0  # of the logistic-softmax
    prior_mean: float = 0.0
    prediction_prior_mean: float | None = None  # in use; the same by default
    learn_prior_mean: bool = False
    rule: TaskRule = "integral"  # see `sureshot.meta.learners.prediction`
    training_rule: TaskRule | None = None
    # What turns latents into probabilities: the inference's likelihood or another. One-vs-each compares a class with
    # every other on its own, so its confidence grows with the number of classes; the softmax's does not.
    predictive_likelihood: PredictiveLikelihood = "own"
    predictive_split: PredictiveSplit = "support"
    # Initial, in squared units of the latents; what a small learning rate makes of it stays close to it.
    outputscale: float = 1.0
    learn_outputscale: bool = True
    constant: float = 0.0  # initial relative variance of an intercept; 0 for none
    lengthscale: float | None = None
    per_class_kernel: bool = False
    scale: Scale = "exp"  # see `TaskKernel`
    noise: float = 0.1  # variance, of least squares
    # Batch normalisation of the embeddings, so that kernels of directions see them around their mean; a layer that ends
    # in ReLU gives embeddings with positive cosines, which training may draw together.
    batch_norm: bool = False
    fit_normalisation: bool = False  # to validation classes; see `GaussianProcessLearner`
    fit_temperature: bool = False  # likewise
    n_base_classes: int | None = None  # for the objective "base_classes", which needs it; meta-training fills it in


_ONE_VS_EACH_GIBBS = {"likelihood": "one_vs_each", "inference": "gibbs"}
_LOGISTIC_SOFTMAX_GIBBS = {"likelihood": "logistic_softmax", "inference": "gibbs", "learn_prior_mean": True}
_CDKT = {
    "likelihood": "logistic_softmax",
    "inference": "mean_field",
    "augmentation": "poisson_gamma",
    "n_steps": 2,
    "n_steps_prediction": 20,
    "warm_start": True,
    "covariance_first": True,
    "temperature": 0.2,
}
_DKT = {
    "likelihood": "least_squares",
    "inference": "exact",
    "objective": "marginal",
    "scale": "double_softplus",
    "per_class_kernel": True,
    "rule": "plug_in",
    "predictive_likelihood": "logistic_softmax",
}

# What the text says, for the learners of the papers.
_PAPER: dict[str, dict[str, Any]] = {
    "ove_gibbs_ml": _ONE_VS_EACH_GIBBS | {"objective": "marginal"},
    "ove_gibbs_pl": _ONE_VS_EACH_GIBBS | {"objective": "predictive"},
    "logistic_softmax_gibbs_ml": _LOGISTIC_SOFTMAX_GIBBS | {"objective": "marginal"},
    "logistic_softmax_gibbs_pl": _LOGISTIC_SOFTMAX_GIBBS | {"objective": "predictive"},
    "cdkt_ml": _CDKT | {"objective": "marginal", "prediction_prior_mean": -5.0},
    "cdkt_pl": _CDKT | {"objective": "predictive"},
    "dkt": _DKT,
}

_RELEASED_CDKT = {"n_steps_prediction": 30, "random_shapes": True, "detach_tilting": True}

# What the released code does instead.
_RELEASED: dict[str, dict[str, Any]] = {
    "ove_gibbs_ml": {"rule": "released_expected_log"},
    "ove_gibbs_pl": {"rule": "released_expected_log"},
    "cdkt_ml": _RELEASED_CDKT | {"released_bound": True},
    "cdkt_pl": _RELEASED_CDKT | {"predictive_split": "first_rows"},
}

_ONE_VS_EACH_MEAN_FIELD = {
    "likelihood": "one_vs_each",
    "inference": "mean_field",
    "pairs_per_row": 4.0,
    "outputscale": 25.0,
    "rule": "plug_in",
    "predictive_likelihood": "softmax",
    "fit_normalisation": True,
    "fit_temperature": True,
}

# Ours. The bound and one sweep from the prior have the wrong gradient in the output scale: those learners keep the
# scale that they start from, or start their chains from a posterior.
_RECOMMENDED: dict[str, dict[str, Any]] = {
    "ove_gibbs_ml": _ONE_VS_EACH_GIBBS | {"objective": "marginal", "start": "mean_field", "n_sweeps": 20},
    "ove_gibbs_pl": _ONE_VS_EACH_GIBBS | {"objective": "predictive", "n_sweeps": 5},
    "ove_mean_field_ml": _ONE_VS_EACH_MEAN_FIELD
    | {"objective": "marginal", "n_steps": 3, "outputscale": 4.0, "learn_outputscale": False},
    "ove_mean_field_pl": _ONE_VS_EACH_MEAN_FIELD | {"objective": "predictive"},
    "ove_mean_field_transfer": _ONE_VS_EACH_MEAN_FIELD | {"objective": "base_classes"},
    "logistic_softmax_gibbs_ml": _LOGISTIC_SOFTMAX_GIBBS
    | {"objective": "marginal", "start": "mean_field", "n_sweeps": 20, "outputscale": 25.0},
    "logistic_softmax_gibbs_pl": _LOGISTIC_SOFTMAX_GIBBS
    | {"objective": "predictive", "n_sweeps": 5, "outputscale": 25.0},
    "cdkt_ml": {
        "likelihood": "logistic_softmax",
        "objective": "marginal",
        "n_steps": 2,
        "temperature": 0.2,
        "prior_mean": -5.0,
    },
    "cdkt_pl": {"likelihood": "logistic_softmax", "objective": "predictive", "outputscale": 25.0, "prior_mean": -5.0},
    "dkt": {
        "likelihood": "least_squares",
        "inference": "exact",
        "objective": "marginal",
        "rule": "plug_in",
        "predictive_likelihood": "logistic_softmax",
    },
}

# Switches that only some learners read, and the settings that those have.
_BELONGS_TO: dict[str, dict[str, tuple[str, ...]]] = {
    "temperature": {"likelihood": ("logistic_softmax",)},
    "augmentation": {"likelihood": ("logistic_softmax",), "inference": ("mean_field",)},
    "normalisation": {"likelihood": ("one_vs_each",)},
    "pairs_per_row": {"likelihood": ("one_vs_each",), "inference": ("mean_field",)},
    "n_steps": {"inference": ("mean_field",), "objective": ("marginal", "predictive")},
    "n_steps_prediction": {"inference": ("mean_field",)},
    "detach_inner": {"inference": ("mean_field",), "objective": ("marginal", "predictive")},
    "tolerance": {"inference": ("mean_field",), "objective": ("marginal", "predictive")},
    "warm_start": {"inference": ("mean_field",), "objective": ("marginal", "predictive")},
    "covariance_first": {"inference": ("mean_field",), "objective": ("marginal", "predictive")},
    "random_shapes": {"augmentation": ("poisson_gamma",), "objective": ("marginal", "predictive")},
    "detach_tilting": {"augmentation": ("poisson_gamma",), "objective": ("marginal", "predictive")},
    "released_bound": {"augmentation": ("poisson_gamma",), "objective": ("marginal",)},
    "n_chains": {"inference": ("gibbs",)},
    "n_sweeps": {"inference": ("gibbs",)},
    "n_sweeps_prediction": {"inference": ("gibbs",)},
    "start": {"inference": ("gibbs",)},
    "noise": {"inference": ("exact",)},
    "training_rule": {"objective": ("predictive",)},
    "predictive_split": {"objective": ("predictive",)},
    "n_base_classes": {"objective": ("base_classes",)},
    # Training by base classes leaves the kernel and the prior as they are; one-vs-each has latents' differences only.
    "learn_outputscale": {"objective": ("marginal", "predictive")},
    "learn_prior_mean": {"objective": ("marginal", "predictive"), "likelihood": ("logistic_softmax", "least_squares")},
    "prior_mean": {"likelihood": ("logistic_softmax", "least_squares")},
    "prediction_prior_mean": {"likelihood": ("logistic_softmax", "least_squares")},
}

GP_LEARNER_NAMES: tuple[str, ...] = tuple(_RECOMMENDED)


@cache
def _types() -> dict[str, Any]:
    """Of the settings, by name; to read the annotations takes longer than to build the rest of a small learner."""
    return get_type_hints(GaussianProcessSettings)


def settings_of(values: Mapping[str, Any]) -> GaussianProcessSettings:
    """Settings as a checkpoint has them, whatever presets stand for now; those that it lacks had their defaults.

    Raises
    ------
    ValueError
        For an unknown setting, or a value of another type.
    """
    hints, found = _types(), dict(values)
    unknown = sorted(found.keys() - hints.keys())
    if unknown:
        raise ValueError(f"unknown settings of a Gaussian-process learner: {', '.join(unknown)}")
    return GaussianProcessSettings(**{name: typed_value(name, hints[name], value) for name, value in found.items()})


def gaussian_process_settings(name: str, preset: str, **options: Any) -> GaussianProcessSettings:
    """The settings of a learner under a preset, with some replaced.

    Learners of ours (one-vs-each by mean field) have no paper; their presets are all ``recommended``.

    Raises
    ------
    ValueError
        For an unknown learner, preset or option, a value of another type, or an option that the learner does not read.
    """
    if name not in _RECOMMENDED:
        raise ValueError(f"unknown learner {name!r}{near(name, list(_RECOMMENDED))}")
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(map(repr, PRESETS))}, got {preset!r}")
    if preset == "recommended" or name not in _PAPER:
        chosen = dict(_RECOMMENDED[name])
    else:
        chosen = dict(_PAPER[name])
        if preset == "released-code":
            chosen |= _RELEASED.get(name, {})
    hints = _types()
    for option, value in options.items():
        if option not in hints:
            raise ValueError(f"learner {name!r} has no option {option!r}{near(option, hints)}")
        chosen[option] = typed_value(f"the option {option} of {name}", hints[option], value)
    settings = replace(GaussianProcessSettings(), **chosen)
    for option in options:
        for switch, values in _BELONGS_TO.get(option, {}).items():
            if getattr(settings, switch) not in values:
                raise ValueError(
                    f"the option {option} of {name} would change nothing: it belongs to {switch} "
                    f"{' or '.join(map(repr, values))}, and here {switch} is {getattr(settings, switch)!r}"
                )
    return settings
