"""Adapting a network to each of many tasks by gradient steps; the learners are in `sureshot.meta.baselines`."""

# The learners' contract imports the baselines, and these this package's modules: see `sureshot.meta.baselines`.
import sureshot.meta.learners.embedding  # noqa: F401
