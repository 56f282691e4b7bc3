"""Gaussian-process classifiers that learn from a handful of labels and know how sure they are."""
