"""A factor that is appended to is that of all rows at once."""

from __future__ import annotations

import torch

from sureshot.gaussian.algebra import append_to_factor


def test_a_factor_bordered_by_a_block_is_that_of_the_whole_matrix() -> None:
    x = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = x @ x.mT + torch.eye(9, dtype=torch.float64)
    grown_factor = append_to_factor(torch.linalg.cholesky(whole[:6, :6]), whole[:6, 6:], whole[6:, 6:])
    torch.testing.assert_close(grown_factor, torch.linalg.cholesky(whole), rtol=1e-10, atol=1e-10)
