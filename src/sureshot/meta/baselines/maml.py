"""Model-agnostic meta-learning: a start from which a few gradient steps on the support adapt the whole network.

The loss of a task is the cross-entropy of its queries after the inner steps. Its gradient in the start goes through the
steps (second order); with ``first_order`` their gradients are constants of it.

The preset ``paper`` is what the tables of the Gaussian-process papers quote (Chen et al. 2019 and its code): five steps
of 0.01, a last layer of five learnt rows, queries with batch statistics of their own. That code takes four tasks a step
of the optimiser; on Omniglot it takes 32, and one inner step of 0.1 (options ``inner_steps`` and ``inner_rate``). By
default the last layer starts at zero, the rate is larger, as such a layer has further to go, and queries are answered
one by one (`GradientLearner`).

References: Finn, Abbeel and Levine (2017), Model-agnostic meta-learning for fast adaptation of deep networks; Chen et
al. (2019), A closer look at few-shot classification.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sureshot.meta.gradient.inner_loop import Descent, Parameters
from sureshot.meta.gradient.learner import GradientLearner, QueryStatistics
from sureshot.networks.backbones.base import Backbone
from sureshot.networks.precision import Precision


class MAML(GradientLearner):
    """Model-agnostic meta-learning (Finn et al. 2017)."""

    name = "maml"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {"inner_rate": 0.01, "way": 5, "query_statistics": "query"},
    }

    def __init__(
        self,
        backbone: Backbone,
        *,
        inner_steps: int = 5,
        inner_steps_prediction: int | None = None,  # in use; the same by default
        inner_rate: float = 0.1,
        first_order: bool = False,
        way: int | None = None,  # classes of every task, each with a learnt start; any number by default
        query_statistics: QueryStatistics = "support",  # whose batch statistics normalise the queries
        seed: int = 0,  # of the last layer's start, with `way`
        precision: Precision = "float32",
    ) -> None:
        in_use = inner_steps if inner_steps_prediction is None else inner_steps_prediction
        descents = Descent(inner_steps, inner_rate, first_order), Descent(in_use, inner_rate, first_order)
        super().__init__(backbone, *descents, way, query_statistics, precision, seed)

    def start(self, n_classes: int) -> Parameters:
        return self.network_start(n_classes)

    def penalty(self, start: Parameters, parameters: Parameters, inner: bool) -> float:
        """Nothing."""
        return 0.0
