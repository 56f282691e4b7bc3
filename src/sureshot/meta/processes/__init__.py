"""Few-shot learners of numbers: neural processes, and deep kernel transfer; `make_process` builds one by name."""

from sureshot.meta.processes.exact import ExactProcess
from sureshot.meta.processes.registry import PROCESS_NAMES, make_process

__all__ = ["PROCESS_NAMES", "ExactProcess", "make_process"]
