"""Experiments: one module for every table or figure, each run by ``python -m experiments NAME``.

They are in the repository, not in the wheel: they import `sureshot`, and nothing of it imports them. An experiment is a
frozen configuration, a run, and what comes out: tables, figures and the verdicts that its own numbers give
(`experiments.experiment`). `experiments.command` is the command line, `experiments.registry` finds them by name and
`experiments.tables` writes what they return. To add one, write a module with an object ``EXPERIMENT``, name it in the
registry, and give it a small-size test; `experiments.confidence_histograms` is the one to read first.
"""
