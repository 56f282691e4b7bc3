"""A small problem, and a tree of Gaussian processes by the dumbest way there is: node by node, class by class."""

from __future__ import annotations

import torch
from torch import Tensor

from sureshot.gaussian import GramPrior, Queries
from sureshot.inference.mean_field import fit_mean_field, initial_posterior, mean_field_step
from sureshot.likelihoods import Logistic
from sureshot.tree import ClassTree, SharedFeatures, SharedGram

F64 = torch.float64
TREE = ClassTree(((7, 9), (0, 8), (3, 1), (4, 10), (2, 5)))


def rows(n: int = 40, n_classes: int = 6, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Training rows, labels (every class at least once) and queries."""
    generator = torch.Generator().manual_seed(seed)
    centres = 2 * torch.randn(n_classes, 3, dtype=F64, generator=generator)
    more = torch.randint(n_classes, (n - n_classes,), generator=generator)
    y = torch.cat([torch.arange(n_classes), more])[torch.randperm(n, generator=generator)]
    x = centres[y] + torch.randn(n, 3, dtype=F64, generator=generator)
    return x, y, centres.repeat(2, 1) + torch.randn(2 * n_classes, 3, dtype=F64, generator=generator)


def rbf(a: Tensor, b: Tensor) -> Tensor:
    return torch.exp(-0.5 * (a.unsqueeze(-2) - b.unsqueeze(-3)).square().sum(-1) / 4)


def gram(x: Tensor) -> SharedGram:
    return SharedGram(rbf(x, x), lambda query: Queries(rbf(x, query), torch.ones(len(query), dtype=x.dtype)))


def features(x: Tensor) -> SharedFeatures:
    return SharedFeatures(x, lambda query: Queries(query, query.square().sum(-1)))


def linear(x: Tensor) -> SharedGram:
    return SharedGram(x @ x.mT, lambda query: Queries(x @ query.mT, query.square().sum(-1)))


def one_by_one(
    tree: ClassTree,
    shared: SharedGram,
    x_query: Tensor,
    y: Tensor,
    weight: Tensor | None = None,
    prior_mean: Tensor | None = None,
    output_scale: Tensor | None = None,
    n_steps: int | None = None,  # of mean field, by default to the fixed point
) -> tuple[Tensor, Tensor, Tensor]:
    """Latent means and variances (C - 1, Q) and bounds (C - 1,), by a fit and explicit inverses for each node."""
    cross, own = shared.covariance(x_query)
    found = []
    for node in range(tree.n_nodes):
        sides = {c: side for c in range(tree.n_classes) for k, side in tree.path(c) if k == node}
        here = [n for n in range(len(y)) if int(y[n]) in sides]
        a = torch.tensor(0.0, dtype=F64) if prior_mean is None else prior_mean[node]
        s = 1.0 if output_scale is None else float(output_scale[node])
        if not here:
            found.append((a.expand(len(x_query)), s * own, torch.tensor(0.0, dtype=F64)))
            continue
        K, k = s * shared.gram[here][:, here], s * cross[here]
        label = torch.tensor([sides[int(y[n])] for n in here])
        share = None if weight is None else weight[here]
        prior = GramPrior(K[None], a.reshape(1, 1))
        if n_steps is None:
            fit = fit_mean_field(prior, Logistic(), label, share, 2, max_steps=2000, tolerance=1e-12)
            sites, bound = fit.sites, fit.bound
        else:
            posterior = initial_posterior(prior, Logistic(), label, 2)
            for _ in range(n_steps):
                posterior, info = mean_field_step(posterior, prior, Logistic(), label, share)
            sites, bound = posterior.sites, info.bound
        w, b = (part[0] for part in sites)
        inverse = torch.linalg.inv(torch.eye(len(here), dtype=F64) + K * w)  # (I + K W)^-1
        mean = a + k.mT @ ((b - w * a) - w * (inverse @ K @ (b - w * a)))
        found.append((mean, s * own - (k * (torch.diag(w) @ inverse @ k)).sum(0), bound))
    return tuple(torch.stack(part) for part in zip(*found, strict=True))
