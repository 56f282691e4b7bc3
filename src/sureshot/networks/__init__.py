"""Networks and how they are trained, whatever they are for.

`backbones` turn images, embeddings and sequences into features. `train` trains any `Trainable` (a module, its data and
its loss) by Adam or by gradient descent with momentum: with a log, with checkpoints from which a killed run is resumed
to the same bits, in several processes if `torchrun` started them. Few-shot learners are trained so
(`sureshot.meta.training`). Nothing here knows of tasks, or reads data.
"""

from typing import TYPE_CHECKING

from sureshot.lazy import imported_when_asked_for

if TYPE_CHECKING:
    from sureshot.networks.distributed import Processes, processes
    from sureshot.networks.divergence import DivergedError
    from sureshot.networks.loop import Trained, train
    from sureshot.networks.loop_settings import LoopSettings
    from sureshot.networks.trainable import Scores, Trainable, differing_settings, milestones
    from sureshot.progress import Progress

__all__ = [
    "DivergedError",
    "LoopSettings",
    "Processes",
    "Progress",
    "Scores",
    "Trainable",
    "Trained",
    "differing_settings",
    "milestones",
    "processes",
    "train",
]

__getattr__ = imported_when_asked_for(__name__)
