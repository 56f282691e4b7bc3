"""Laplace's method for the softmax by explicit inverses."""

from __future__ import annotations

import torch
from torch import Tensor


def dense_softmax_laplace(gram: Tensor, y: Tensor, n_classes: int, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mode, posterior covariance (CN, CN) and Laplace evidence by plain Newton steps with explicit inverses."""
    n = len(y)
    big = torch.block_diag(*[gram] * n_classes)
    inverse = torch.linalg.inv(big)
    one_hot = torch.nn.functional.one_hot(y, n_classes).double().mT
    f = torch.zeros(n_classes * n, dtype=torch.float64)
    for _ in range(100):
        p = torch.softmax(f.view(n_classes, n), 0)
        w = torch.diag((s * p).reshape(-1))
        for i in range(n):
            index = torch.arange(n_classes) * n + i
            w[index[:, None], index] -= s[i] * p[:, i, None] * p[:, i]
        f = torch.linalg.solve(inverse + w, w @ f + (s * (one_hot - p)).reshape(-1))
    log_p = torch.log_softmax(f.view(n_classes, n), 0)
    identity = torch.eye(len(f), dtype=torch.float64)
    evidence = (s * one_hot * log_p).sum() - 0.5 * f @ inverse @ f - 0.5 * torch.logdet(identity + big @ w)
    return f.view(n_classes, n), torch.linalg.inv(inverse + w), evidence
