import pytest
import torch

from sureshot.kernels import RBF, Brownian, Columns, Expression, GammaExponential, Linear, Matern, Periodic
from sureshot.kernels.shared_rows import SharedRows

KERNELS: list[Expression] = [
    RBF([[0.7], [1.3]]) + 0.3,
    Matern(1.5, [0.5, 0.7, 1.1]) * Linear(),
    Brownian([[0.7], [1.3]]) * Brownian([0.7, 1.3, 2.0]),
    Columns((2,), GammaExponential([[0.7], [1.3]], [0.4, 1.7]) + Periodic(2.0, 1.1)),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_blocks_together_are_the_whole(kernel):
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[7] = x[3]
    rows, others = SharedRows(x), SharedRows(x, x[:9] + 0.5)
    torch.testing.assert_close(kernel.on(rows), kernel(x))
    for whole in (rows, others):
        found = torch.full_like(kernel.on(whole), torch.nan)
        for first, second, block in whole.blocks(n_kernels=900):
            found[..., first, second] = kernel.on(block)
        expected = kernel.on(whole)
        if whole is rows:
            assert len(whole.blocks(n_kernels=900)) > 2
            above = torch.ones(50, 50, dtype=torch.bool).triu(1)
            found = torch.where(above, found.mT, found)
        torch.testing.assert_close(found, expected)
