"""The contract of every few-shot learner: one battery, inherited by adding a line to `CASES`.

Wherever two computations should give the same, deterministic learners must agree to rounding, in latents, losses and
predictions; predictions that integrate over a fixed set of points, which are not symmetric in the classes, agree to
the stated error of the integral when classes are renumbered. Learners that sample must agree in the mean over seeds,
within six standard errors. `same` makes these comparisons.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sureshot.likelihoods import OneVsEach
from sureshot.meta.learners.base import ClassLearner, TaskPosterior, seeded
from sureshot.meta.learners.embedding import EmbeddingLearner
from sureshot.meta.learners.gp import GaussianProcessLearner
from sureshot.meta.learners.registry import LEARNER_NAMES, learner_from_config, make_learner
from sureshot.meta.tasks import Tasks
from sureshot.networks.backbones.base import Backbone

CPU = torch.device("cpu")
WIDTH = 6
N_BASE_CLASSES = 7
N_SEEDS = 6
INTEGRAL = 1e-2
"""Error of probabilities by `sureshot.likelihoods.quadrature`, whose points are not symmetric in the classes."""


class Network(Backbone):
    """A small smooth network."""

    name = "network"
    map_shape = 5, 1, 1

    def __init__(self, seed: int = 0) -> None:
        super().__init__((WIDTH,), 5, {})
        generator = seeded(CPU, seed)
        self.hidden = nn.Parameter(torch.randn(8, WIDTH, generator=generator) / math.sqrt(WIDTH))
        self.output = nn.Parameter(torch.randn(5, 8, generator=generator) / math.sqrt(8))

    def encode(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.hidden.T) @ self.output.T


@dataclass(frozen=True)
class Case:
    """A learner and what it is allowed not to do; ``None`` means that it does."""

    label: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)
    samples: bool = False
    row_order: str | None = None  # why another order of the support rows may change the result
    class_order: str | None = None  # why another numbering of the classes may
    other_ways: str | None = None  # why tasks of other numbers of classes, or padded ones, are not taken
    no_slopes: str | None = None  # why the gradient is not the slope of the loss
    integrates: bool = False  # whether probabilities are integrals by points
    blank: str | None = None  # why it cannot tell classes apart before it is trained
    chases: str | None = None  # why its steps need not lower the loss
    alone: str | None = None  # why tasks cannot share passes

    def build(self, seed: int = 0) -> ClassLearner:
        return make_learner(self.name, Network(seed), **self.options)


SHUFFLES = "the shuffles of the descent go by row"
SEQUENCE = "the recurrent networks read the support as a sequence"
BASES = {"n_base_classes": N_BASE_CLASSES, "head_training": {"epochs": 12, "learning_rate": 0.1}}
PASSES = "each task passes a network of its own"
EXTRA: dict[str, dict[str, Any]] = {
    "matchingnet": {"row_order": SEQUENCE, "class_order": SEQUENCE},
    "feature_transfer": {"options": BASES, "row_order": SHUFFLES},
    "baseline_plus_plus": {"options": BASES, "row_order": SHUFFLES},
    "maml": {"alone": PASSES},
    "abml": {"samples": True, "alone": PASSES},
    "bayesian_maml": {"samples": True},
    "relationnet": {
        "blank": "what is alike is a network that starts at random",
        "no_slopes": "a pair that no channel answers to lies on the kink of a ReLU; see test_relation",
    },
}
RANDOM_START = "small steps leave a random last layer what it was"
NUMBERED = "every class has a learnt start of its own"
ONLY_THREE = "its last layer has three classes"
AS_PUBLISHED: dict[str, Any] = {"class_order": NUMBERED, "other_ways": ONLY_THREE}
SPLIT = "the released split takes the first rows of the classes in order"
DETACHED = "the tilting f~ is a constant of the gradient"
BY_SAMPLES = "the gradient is an estimate by samples"
ONE_DRAW = {"preset": "paper", "n_sweeps_prediction": 3}
GIBBS: dict[str, Any] = {
    "samples": True,
    "options": {"n_chains": 20, "n_sweeps": 3, "n_sweeps_prediction": 3},
    "no_slopes": BY_SAMPLES,
}
INTEGRATING = ("ove_mean_field_ml", "ove_mean_field_pl", "cdkt_ml", "cdkt_pl")
FEW_STEPS: dict[str, Any] = {"options": {"n_steps": 4, "n_steps_prediction": 5}, "integrates": True}


def traits(name: str) -> dict[str, Any]:
    if name == "ove_mean_field_transfer":
        return {"options": {"n_steps_prediction": 5, "n_base_classes": N_BASE_CLASSES}, "integrates": True}
    if name in INTEGRATING:
        return FEW_STEPS
    return GIBBS if "gibbs" in name else EXTRA.get(name, {})


CASES = [Case(name, name, **traits(name)) for name in LEARNER_NAMES] + [
    Case("maml_published", "maml", {"preset": "paper", "way": 3}, **AS_PUBLISHED, alone=PASSES, blank=RANDOM_START),
    Case("maml_first_order", "maml", {"first_order": True}, no_slopes="gradients are constants", alone=PASSES),
    Case(
        "abml_published", "abml", {"preset": "paper", "way": 3}, True, **AS_PUBLISHED, alone=PASSES, blank=RANDOM_START
    ),
    Case("bayesian_maml_published", "bayesian_maml", {"preset": "paper", "way": 3}, **AS_PUBLISHED),
    Case(
        "bayesian_maml_chaser",
        "bayesian_maml",
        {"objective": "chaser"},
        True,
        no_slopes="the leader is a constant of the gradient",
        chases="the leader moves away as its pursuers learn",
    ),
    Case("matchingnet_without_context", "matchingnet", {"full_context": False}),
    Case("matchingnet_fixed_steps", "matchingnet", {"attention_steps": 2}, row_order=SEQUENCE, class_order=SEQUENCE),
    Case("cdkt_ml_paper", "cdkt_ml", {"preset": "paper", "n_steps_prediction": 5}, integrates=True),
    Case("cdkt_pl_paper", "cdkt_pl", {"preset": "paper", "n_steps_prediction": 5}, integrates=True),
    Case(
        "cdkt_ml_detached",
        "cdkt_ml",
        {"preset": "paper", "n_steps_prediction": 5, "detach_inner": True},
        no_slopes="the sites are constants of the gradient",
        integrates=True,
    ),
    Case("cdkt_pl_rbf", "cdkt_pl", {"kernel": "rbf", **FEW_STEPS["options"]}, integrates=True),
    Case("dkt_linear", "dkt", {"kernel": "linear"}),
    Case("ove_gibbs_ml_paper", "ove_gibbs_ml", ONE_DRAW, True, no_slopes=BY_SAMPLES),
    Case("ove_gibbs_pl_released", "ove_gibbs_pl", {**ONE_DRAW, "preset": "released-code"}, True, no_slopes=BY_SAMPLES),
    Case("logistic_softmax_gibbs_pl_paper", "logistic_softmax_gibbs_pl", ONE_DRAW, True, no_slopes=BY_SAMPLES),
    Case(
        "cdkt_pl_released",
        "cdkt_pl",
        {"preset": "released-code", "n_steps_prediction": 5, "random_shapes": False},
        row_order=SPLIT,
        class_order=SPLIT,
        other_ways="the released split takes tasks of one size only",
        no_slopes=DETACHED,
        integrates=True,
    ),
    Case(
        "cdkt_ml_released",
        "cdkt_ml",
        {"preset": "released-code", "n_steps_prediction": 5, "random_shapes": False},
        no_slopes=DETACHED,
        integrates=True,
    ),
]
EPISODIC = [case for case in CASES if not case.build().samples_images]


def takes_prior_mean(case: Case) -> bool:
    """Whether the latents' prior mean is an option: not to one-vs-each, which knows differences only."""
    learner = case.build()
    return isinstance(learner, GaussianProcessLearner) and not isinstance(
        learner.training_inference.likelihood, OneVsEach
    )


def each(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case.label for case in cases])


def doing(attribute: str, cases: list[Case] = CASES) -> pytest.MarkDecorator:
    """Every case, those with a reason in ``attribute`` skipped for it."""
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(
                case, id=case.label, marks=[pytest.mark.skip(reason=why)] if (why := getattr(case, attribute)) else []
            )
            for case in cases
        ],
    )


def episodes(n_tasks: int = 2, way: int = 3, shots: int = 2, queries: int = 2, seed: int = 0) -> Tasks:
    """Tasks in float64 with classes about their means, rows in random order."""
    generator = seeded(CPU, seed)

    def rows(each_class: int) -> tuple[Tensor, Tensor]:
        y = torch.arange(way).repeat(each_class).expand(n_tasks, -1)
        y = y.take_along_dim(torch.rand(y.shape, generator=generator).argsort(1), 1)
        noise = torch.randn(*y.shape, WIDTH, generator=generator, dtype=torch.float64)
        return means.take_along_dim(y[..., None], 1) + 0.5 * noise, y

    means = 1.5 * torch.randn(n_tasks, way, WIDTH, generator=generator, dtype=torch.float64)
    support_x, support_y = rows(shots)
    query_x, query_y = rows(queries)
    return Tasks(support_x, support_y, query_x, query_y, way)


def images(n_tasks: int = 2, n_images: int = 12, seed: int = 0) -> Tasks:
    """Single images of all base classes."""
    generator = seeded(CPU, seed)
    y = torch.arange(n_images).remainder(N_BASE_CLASSES).expand(n_tasks, -1)
    means = 1.5 * torch.randn(N_BASE_CLASSES, WIDTH, generator=seeded(CPU, 99), dtype=torch.float64)
    x = means[y] + 0.5 * torch.randn(n_tasks, n_images, WIDTH, generator=generator, dtype=torch.float64)
    return Tasks(x, y, x[:, :0], y[:, :0], N_BASE_CLASSES)


def training_tasks(learner: ClassLearner, seed: int = 0) -> Tasks:
    return images(seed=seed) if learner.samples_images else episodes(seed=seed)


def double(case: Case) -> ClassLearner:
    return case.build().double().eval()


def condition(learner: ClassLearner, tasks: Tasks, generator: torch.Generator | None = None) -> TaskPosterior:
    return learner.condition(
        tasks.support_x, tasks.support_y, tasks.n_classes, tasks.support_mask, tasks.class_mask, generator
    )


def predict(learner: ClassLearner, tasks: Tasks, generator: torch.Generator | None = None) -> Tensor:
    return condition(learner, tasks, generator).predict(tasks.query_x)


def latents(learner: ClassLearner, tasks: Tasks, generator: torch.Generator | None = None) -> Tensor:
    """Means and variances, (2, T, Q, C)."""
    found = condition(learner, tasks, generator).latents(tasks.query_x)
    return torch.stack([found.mean, found.variance])


def losses(learner: ClassLearner, tasks: Tasks, generator: torch.Generator | None = None) -> Tensor:
    learner.task_state = None  # a learner that carries something over starts anew: losses of the first step
    with torch.no_grad():
        return learner(tasks, generator)


Quantity = Callable[[torch.Generator], Tensor]


@cache
def usual(label: str, quantity: Callable[[ClassLearner, Tasks, torch.Generator], Tensor]) -> Tensor:
    """What a case says of `episodes`, or of the tasks that it trains on, for each seed."""
    (case,) = (case for case in CASES if case.label == label)
    learner = double(case)
    tasks = training_tasks(learner) if quantity is losses else episodes()
    return torch.stack([quantity(learner, tasks, seeded(CPU, seed)) for seed in range(N_SEEDS if case.samples else 1)])


def same(
    case: Case,
    quantity: Callable[[ClassLearner, Tasks, torch.Generator], Tensor],  # as `usual` has it
    other: Quantity,
    error: float = 1e-9,
) -> None:
    """Equal values, or equal means over seeds if the learner samples."""
    a = usual(case.label, quantity)
    if not case.samples:
        torch.testing.assert_close(other(seeded(CPU, 0)), a[0], rtol=1e-7, atol=error)
        return
    b = torch.stack([other(seeded(CPU, N_SEEDS + seed)) for seed in range(N_SEEDS)])
    noise = ((a.var(0) + b.var(0)) / N_SEEDS).sqrt()
    assert ((a.mean(0) - b.mean(0)).abs() <= 6 * noise + error).all()


@each(CASES)
def test_losses_are_one_for_each_task(case: Case) -> None:
    learner = case.build()
    tasks = training_tasks(learner)
    values = learner(tasks.with_inputs(tasks.support_x.float(), tasks.query_x.float()))
    assert values.shape == (2,)
    assert values.dtype == torch.float32
    assert values.isfinite().all()


@each(CASES)
@pytest.mark.parametrize(("way", "shots", "queries"), [(3, 2, 4), (2, 1, 1), (5, 1, 2)])
def test_predictions_are_distributions(case: Case, way: int, shots: int, queries: int) -> None:
    if case.other_ways is not None and way != 3:
        pytest.skip(case.other_ways)
    tasks = episodes(2, way, shots, queries)
    posterior = condition(double(case), tasks)
    probabilities, latents = posterior.predict(tasks.query_x), posterior.latents(tasks.query_x)
    assert probabilities.shape == latents.mean.shape == latents.variance.shape == (2, queries * way, way)
    assert not probabilities.requires_grad
    assert (probabilities >= 0).all()
    torch.testing.assert_close(probabilities.sum(-1), torch.ones_like(probabilities[..., 0]))
    assert latents.mean.isfinite().all()
    assert (latents.variance >= 0).all()


@doing("blank")
def test_separated_classes_are_told_apart(case: Case) -> None:
    tasks = episodes(20, 3, 5, 4, seed=1)
    probabilities = predict(double(case), tasks)
    assert (probabilities.argmax(-1) == tasks.query_y).double().mean() > 0.75


@each(CASES)
def test_a_batch_is_its_tasks_one_by_one(case: Case) -> None:
    learner = double(case)
    parts, to_learn = (
        [tasks.select(slice(task, task + 1)) for task in range(2)] for tasks in (episodes(), training_tasks(learner))
    )
    same(case, predict, lambda g: torch.cat([predict(learner, part, fork(g)) for part in parts]))
    same(case, losses, lambda g: torch.cat([losses(learner, part, fork(g)) for part in to_learn]))


def fork(generator: torch.Generator) -> torch.Generator:
    """A generator in the same state."""
    return generator.clone_state()


@doing("class_order")
def test_classes_may_be_renumbered(case: Case) -> None:
    learner, tasks = double(case), episodes()
    number = torch.tensor([2, 0, 1])  # class c is now called number[c]
    renumbered = replace(tasks, support_y=number[tasks.support_y], query_y=number[tasks.query_y])
    error = INTEGRAL if case.integrates else 1e-9
    if not case.samples:
        same(case, latents, lambda g: latents(learner, renumbered, g)[..., number])
    same(case, predict, lambda g: predict(learner, renumbered, g)[..., number], error)
    if not learner.samples_images:
        same(case, losses, lambda g: losses(learner, renumbered, g), error)


@doing("row_order")
def test_support_rows_may_come_in_any_order(case: Case) -> None:
    learner, tasks = double(case), episodes()
    order = torch.tensor([3, 5, 0, 1, 4, 2])
    moved = replace(tasks, support_x=tasks.support_x[:, order], support_y=tasks.support_y[:, order])
    same(case, predict, lambda g: predict(learner, moved, g))
    if not learner.samples_images:
        same(case, losses, lambda g: losses(learner, moved, g))


def padded(tasks: Tasks, rows: int, classes: int) -> Tasks:
    """The same tasks with rows of nonsense between the real ones and classes that they do not have."""
    n_tasks, n_support = tasks.support_y.shape
    n_queries = tasks.query_y.shape[1]
    total = tasks.n_classes + classes
    nonsense = 100 * torch.ones(n_tasks, rows, WIDTH, dtype=torch.float64)
    wrong = torch.arange(rows).remainder(total).expand(n_tasks, -1)
    extended: dict[str, Tensor] = {}
    for part, n_real in (("support", n_support), ("query", n_queries)):
        x, y = getattr(tasks, f"{part}_x"), getattr(tasks, f"{part}_y")
        place = torch.cat([torch.arange(n_real), torch.full((rows,), n_real / 2)]).argsort(stable=True)
        extended[f"{part}_x"] = torch.cat([x, nonsense], 1)[:, place]
        extended[f"{part}_y"] = torch.cat([y, wrong], 1)[:, place]
        extended[f"{part}_mask"] = (place < n_real).expand(n_tasks, -1)
    class_mask = (torch.arange(total) < tasks.n_classes).expand(n_tasks, -1)
    return Tasks(**extended, n_classes=total, class_mask=class_mask if classes else None)


@doing("other_ways")
@pytest.mark.parametrize(("rows", "classes"), [(3, 0), (4, 2)])
def test_padding_changes_no_prediction(case: Case, rows: int, classes: int) -> None:
    learner, tasks = double(case), episodes()
    larger = padded(tasks, rows, classes)
    probabilities = predict(learner, larger)[larger.query_mask].unflatten(0, tasks.query_y.shape)
    assert (probabilities[..., tasks.n_classes :] == 0).all()
    if not case.samples:
        found = latents(learner, larger)[:, larger.query_mask][..., : tasks.n_classes]
        expected = usual(case.label, latents)[0]
        torch.testing.assert_close(found.view_as(expected), expected, rtol=1e-7, atol=1e-9)

    def with_padding(generator: torch.Generator) -> Tensor:
        found = predict(learner, larger, generator)[larger.query_mask]
        return found.unflatten(0, tasks.query_y.shape)[..., : tasks.n_classes]

    same(case, predict, with_padding, INTEGRAL if case.integrates and classes else 1e-9)


@doing("other_ways")
def test_padding_may_hold_anything(case: Case) -> None:
    learner, tasks = double(case), padded(episodes(), 2, 0)
    assert tasks.support_mask is not None
    spoilt = tasks.support_x.masked_fill(~tasks.support_mask[..., None], torch.nan)
    found = predict(learner, tasks.with_inputs(spoilt, tasks.query_x), seeded(CPU, 1))
    torch.testing.assert_close(found, predict(learner, tasks, seeded(CPU, 1)))


@each(CASES)
def test_no_query_has_no_answer(case: Case) -> None:
    tasks = episodes()
    posterior = condition(double(case), tasks)
    assert posterior.predict(tasks.query_x[:, :0]).shape == (2, 0, 3)
    assert posterior.latents(tasks.query_x[:, :0]).mean.shape == (2, 0, 3)


@each(CASES)
def test_labels_and_rows_are_checked(case: Case) -> None:
    learner, tasks = double(case), episodes()
    for change in (-1, 1):
        if not learner.samples_images:
            with pytest.raises(ValueError, match=r"support_y must hold labels from 0 to n_classes - 1 = 2"):
                learner(replace(tasks, support_y=tasks.support_y + change))
            with pytest.raises(ValueError, match=r"query_y must hold labels from 0 to n_classes - 1 = 2"):
                learner(replace(tasks, query_y=tasks.query_y + change))
        with pytest.raises(ValueError, match=r"support_y must hold labels from 0 to n_classes - 1 = 2"):
            condition(learner, replace(tasks, support_y=tasks.support_y + change))
    nothing = torch.tensor([[True] * 6, [False] * 6])
    with pytest.raises(ValueError, match="one has none"):
        condition(learner, replace(tasks, support_mask=nothing))
    with pytest.raises(ValueError, match="one has none"):
        condition(learner, replace(tasks, support_x=tasks.support_x[:, :0], support_y=tasks.support_y[:, :0]))


@doing("other_ways", EPISODIC)
@pytest.mark.parametrize(("rows", "classes"), [(3, 0), (4, 2)])
def test_padding_changes_no_loss(case: Case, rows: int, classes: int) -> None:
    learner, larger = double(case), padded(episodes(), rows, classes)
    same(case, losses, lambda g: losses(learner, larger, g), INTEGRAL if case.integrates and classes else 1e-9)


@each([case for case in CASES if case.build().samples_images])
def test_padded_images_change_no_loss(case: Case) -> None:
    learner, tasks = double(case), images(n_images=9)
    mask = torch.tensor([[True] * 9, [True] * 4 + [False] * 5])
    masked = losses(learner, replace(tasks, support_mask=mask))
    alone = [losses(learner, tasks.select(slice(0, 1))), losses(learner, shortened(tasks.select(slice(1, 2)), 4))]
    torch.testing.assert_close(masked, torch.cat(alone))


def shortened(tasks: Tasks, rows: int) -> Tasks:
    return replace(tasks, support_x=tasks.support_x[:, :rows], support_y=tasks.support_y[:, :rows])


@doing("other_ways", EPISODIC)
def test_padding_has_no_gradient(case: Case) -> None:
    learner = double(case)
    tasks = padded(episodes(), 2, 1)
    embedded = learner.embed_tasks(tasks) if isinstance(learner, EmbeddingLearner) else tasks
    support = embedded.support_x.detach().requires_grad_()
    query = embedded.query_x.detach().requires_grad_()
    losses_of = learner.task_losses if isinstance(learner, EmbeddingLearner) else learner.input_losses
    loss = losses_of(embedded.with_inputs(support, query), seeded(CPU)).sum()
    gradients = torch.autograd.grad(loss, (support, query), allow_unused=True, materialize_grads=True)
    for grad, mask in zip(gradients, (tasks.support_mask, tasks.query_mask), strict=True):
        assert mask is not None
        assert grad.isfinite().all()
        assert grad[~mask].abs().max() < 1e-14  # rounding of kernels in which padding is a point, else 0


@each(CASES)
def test_gradients_reach_every_parameter(case: Case) -> None:
    learner = double(case)
    learner(training_tasks(learner)).sum().backward()
    for name, parameter in learner.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert parameter.grad.abs().max() > 0, name


@doing("no_slopes")
def test_gradients_are_slopes_of_the_loss(case: Case) -> None:
    learner = double(case)
    tasks = training_tasks(learner)
    parameters = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(learner(tasks).sum(), parameters)
    generator, width = seeded(CPU, 5), 1e-5
    for parameter, gradient in zip(parameters, gradients, strict=True):
        direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        start = parameter.detach().clone()
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.copy_(start + sign * width * direction)
            values.append(losses(learner, tasks).sum())
        with torch.no_grad():
            parameter.copy_(start)
        slope = (values[0] - values[1]) / (2 * width)
        torch.testing.assert_close((gradient * direction).sum(), slope, rtol=1e-4, atol=1e-6)


@doing("chases")
def test_learning_lowers_the_loss(case: Case) -> None:
    learner = case.build()
    optimiser = torch.optim.Adam(learner.parameters(), lr=0.01)
    held_out = [single(training_tasks(learner, seed)) for seed in range(100, 110)]

    def score() -> float:
        return torch.stack([losses(learner, tasks) for tasks in held_out]).mean().item()

    before = score()
    for step in range(25):
        optimiser.zero_grad()
        learner(single(training_tasks(learner, step)), seeded(CPU, step)).mean().backward()
        optimiser.step()
    assert score() < before - 0.01


def single(tasks: Tasks) -> Tasks:
    """The tasks in float32."""
    return tasks.with_inputs(tasks.support_x.float(), tasks.query_x.float())


@each(CASES)
def test_posteriors_are_independent_of_each_other_and_of_later_training(case: Case) -> None:
    learner = double(case)
    first, second = episodes(seed=1), episodes(seed=2)
    posterior = condition(learner, first, seeded(CPU, 1))
    before = [found.clone() for found in (posterior.predict(first.query_x), posterior.latents(first.query_x).mean)]

    def unchanged() -> bool:
        after = posterior.predict(first.query_x), posterior.latents(first.query_x).mean
        return all(torch.equal(one, other) for one, other in zip(after, before, strict=True))

    condition(learner, second, seeded(CPU, 2)).predict(second.query_x)
    assert unchanged()
    optimiser = torch.optim.SGD(learner.parameters(), lr=1.0)
    learner.train()(training_tasks(learner)).sum().backward()  # statistics of batch normalisation move, too
    optimiser.step()
    if isinstance(learner, EmbeddingLearner) and learner.fits_normalisation:
        learner.set_centre(torch.ones(()))
    if learner.fits_temperature:
        learner.set_temperature(3.0)
    assert unchanged()


@each(CASES)
def test_a_posterior_predicts_alike_whatever_the_learners_mode(case: Case) -> None:
    learner, tasks = double(case), episodes()
    expected = predict(learner, tasks)
    learner.train()
    assert torch.equal(predict(learner, tasks), expected)
    assert learner.training


@each(CASES)
def test_a_temperature_is_for_use_and_not_for_training(case: Case) -> None:
    """Probabilities become ``p^(1 / T)`` normalised, and losses stay as they are."""
    learner, tasks = double(case), episodes()
    if not isinstance(learner, GaussianProcessLearner):
        with pytest.raises(ValueError, match="has no temperature of its own"):
            learner.set_temperature(3.0)
        return
    around = training_tasks(learner)
    before = losses(learner, around, seeded(CPU, 1))
    plain = predict(learner, tasks, seeded(CPU, 1))
    learner.set_temperature(3.0)
    powers = plain ** (1 / 3)
    tempered = predict(learner, tasks, seeded(CPU, 1))
    torch.testing.assert_close(tempered, powers / powers.sum(-1, keepdim=True), rtol=1e-6, atol=1e-9)
    assert torch.equal(losses(learner, around, seeded(CPU, 1)), before)


@each([case for case in CASES if takes_prior_mean(case)])
def test_prior_means_of_training_and_of_use(case: Case) -> None:
    """With one of each the learner trains like a learner with the first, and predicts like one with the second."""
    both, first, second = (
        replace(case, options=case.options | options)
        for options in (
            {"prior_mean": -1.0, "prediction_prior_mean": -3.0},
            {"prior_mean": -1.0, "prediction_prior_mean": -1.0},
            {"prior_mean": -3.0, "prediction_prior_mean": -3.0},
        )
    )
    learner, tasks = double(both), episodes()
    around = training_tasks(learner)
    trained, used = (losses(double(other), around, seeded(CPU, 1)) for other in (first, second))
    torch.testing.assert_close(losses(learner, around, seeded(CPU, 1)), trained, rtol=1e-12, atol=0)
    assert (used - trained).abs().min() > 1e-3
    predicted, other = (predict(double(one), tasks, seeded(CPU, 1)) for one in (second, first))
    torch.testing.assert_close(predict(learner, tasks, seeded(CPU, 1)), predicted, rtol=1e-12, atol=0)
    assert (predicted - other).abs().max() > 1e-3


@each(CASES)
def test_bad_inputs_are_refused_by_name(case: Case) -> None:
    learner, tasks = double(case), episodes()
    with pytest.raises(ValueError, match="one class only"):
        learner.condition(tasks.support_x, torch.zeros_like(tasks.support_y))
    posterior = condition(learner, tasks)
    broken = tasks.query_x.clone()
    broken[1, 2, 0] = torch.nan
    for method in (posterior.predict, posterior.latents, posterior.outlier_score):
        with pytest.raises(ValueError, match=r"query_x has NaN .* row 2 of task 1"):
            method(broken)
    with pytest.raises(ValueError, match=r"query_x must be .* the queries of \d+ tasks"):
        posterior.predict(tasks.query_x[:1])
    to_learn = training_tasks(learner)
    spoilt = to_learn.support_x.clone()
    spoilt[1, 0] = torch.inf
    with pytest.raises(ValueError, match=r"support_x has NaN .* row 0 of task 1"):
        learner(replace(to_learn, support_x=spoilt))
    if tasks.support_x.shape == broken.shape:
        with pytest.raises(ValueError, match=r"support_x has NaN .* row 2 of task 1"):
            learner.condition(broken, tasks.support_y)


@each(CASES)
def test_bfloat16_and_passes_of_several_tasks_change_little(case: Case) -> None:
    learner = case.build()
    around = single(training_tasks(learner))
    passes = {"tasks_per_pass": 1 if case.alone else 2}
    if case.alone:
        with pytest.raises(ValueError, match="passes every task by itself"):
            make_learner(case.name, Network(), **case.options, tasks_per_pass=2)
    rough = make_learner(case.name, Network(), **case.options, precision="bfloat16", **passes)
    error = 0.3 if case.samples else 0.05  # of the draws; of 8 bits
    torch.testing.assert_close(losses(rough, around), losses(learner, around), rtol=error, atol=error)
    rough(around).sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in rough.parameters())


@each(CASES)
def test_randomness_is_the_generators(case: Case) -> None:
    learner, tasks = double(case), episodes()
    around = training_tasks(learner)
    state = torch.random.get_rng_state()
    first, again = (predict(learner, tasks, seeded(CPU, 3)) for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(predict(learner, tasks), predict(learner, tasks))
    assert torch.equal(losses(learner, around, seeded(CPU, 3)), losses(learner, around, seeded(CPU, 3)))
    assert torch.equal(torch.random.get_rng_state(), state)
    if case.samples:
        assert not torch.equal(predict(learner, tasks, seeded(CPU, 4)), first)


@each(CASES)
def test_single_precision_is_close(case: Case) -> None:
    learner, tasks = double(case), episodes()
    rough = case.build().eval()
    if case.samples:
        same(case, predict, lambda g: predict(rough, single(tasks), g).double())
        return
    torch.testing.assert_close(predict(rough, single(tasks)).double(), predict(learner, tasks), rtol=0, atol=2e-4)
    around = training_tasks(learner)
    torch.testing.assert_close(losses(rough, single(around)).double(), losses(learner, around), rtol=1e-3, atol=1e-3)


@each(CASES)
def test_config_and_parameters_rebuild_the_learner(case: Case) -> None:
    learner = case.build()
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(0.01)
    rebuilt = learner_from_config(json.loads(json.dumps(learner.config)), Network(seed=1))
    assert rebuilt.config == learner.config
    rebuilt.load_state_dict(learner.state_dict())
    tasks, around = single(episodes()), single(training_tasks(learner))
    assert torch.equal(predict(rebuilt, tasks), predict(learner, tasks))
    assert torch.equal(losses(rebuilt, around), losses(learner, around))


@each(CASES)
def test_labels_without_a_task_dimension_are_refused(case: Case) -> None:
    tasks = episodes()
    with pytest.raises(ValueError, match="add a leading dimension for a single task"):
        double(case).condition(tasks.support_x[0], tasks.support_y[0])
