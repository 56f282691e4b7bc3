"""Choosing kernels, scales, columns and weights of an average by left-out rows."""
