"""Sparse spectrum: random features whose frequencies the evidence learns (Lazaro-Gredilla et al. 2010).

Any few frequencies are a Gaussian process of their own with an exact evidence, which overfits if they are many; between
and beyond the rows its functions repeat themselves. So left-out rows are to compare what is learnt with the draw.
"""

from sureshot.approximations.random_features import RandomFeatures


class SparseSpectrum(RandomFeatures):
    """By frequencies that begin as a draw."""

    name = "ssgp"
    learnt = ("frequencies",)
