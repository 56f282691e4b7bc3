"""Experiments: one module for every table or figure, each run by ``python -m experiments NAME``.

They are in the repository, not in the wheel. An experiment is a frozen configuration, a run, and what comes out:
tables, figures and the verdicts that its own numbers give (`experiments.experiment`). To add one, read
`experiments.digits`.
"""
