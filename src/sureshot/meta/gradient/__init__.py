"""Adapting a network to each of many tasks by gradient steps; the learners are in `sureshot.meta.baselines`."""
