"""Few-shot learning: learners of many small tasks.

`tasks` is the batch that flows, `episodes` draws it from a labelled set (sizes: `protocols`), and `functions` from
functions whose values are numbers. `learners` and `baselines`, and `processes` for numbers, adapt to tasks under one
contract; `training` makes trainees of them for the loop of `sureshot.networks`, and `evaluation` says how good they
are.
"""

from typing import TYPE_CHECKING

from sureshot.lazy import imported_when_asked_for

if TYPE_CHECKING:
    from sureshot.meta.episodes import EpisodeSampler
    from sureshot.meta.protocols import PROTOCOLS, TRAINING_PRESETS, EpisodeProtocol
    from sureshot.meta.tasks import Tasks

__all__ = ["PROTOCOLS", "TRAINING_PRESETS", "EpisodeProtocol", "EpisodeSampler", "Tasks"]

__getattr__ = imported_when_asked_for(__name__)
