"""Kernels whose structure is not known: a prior over structures, and their posterior by sequential Monte Carlo."""
