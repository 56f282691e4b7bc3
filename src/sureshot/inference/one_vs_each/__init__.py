"""The one-vs-each model by Gibbs sampling: its structure, sampler, evidence and predictions.

Given its Polya-Gamma variables it couples the classes of a datum, so it has algebra of its own.
"""
