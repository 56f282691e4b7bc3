"""How rejuvenation is computed: in buffers, in parts, by threads, with the same results."""

import pytest
import torch

from sureshot.kernels.shared_rows import SharedRows
from sureshot.structure.contrasts import Contrasts
from sureshot.structure.grammar import Grammar, KernelPrior
from sureshot.structure.particles import Particles
from sureshot.structure.rejuvenation import Data
from sureshot.structure.smc import SmcSettings, SmcState, smc_step


def rows(n: int, n_classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    return x, torch.randint(n_classes, (n,), generator=generator)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_covariance_in_buffers(n_classes):
    x, y = rows(200, n_classes)
    prior = KernelPrior(Grammar(), 2)
    particles = Particles.drawn(prior, 5, torch.Generator().manual_seed(2))
    contrasts = Contrasts.of_labels(y, n_classes)
    assert len(SharedRows(x).blocks(1)) > 1
    data = Data.of(prior, x, contrasts)
    gram = torch.stack(
        [prior.kernel(structure, z[1:])(x) + 30 for structure, z in zip(particles.structures, particles.z, strict=True)]
    )
    expected = contrasts.covariance(contrasts, gram, particles.nuggets(prior))
    torch.testing.assert_close(data.covariance(particles), expected)
    latent = SmcState.start(prior, 5, n_classes, torch.Generator()).latent
    omega = torch.rand(5, len(contrasts), dtype=torch.float64)
    latent = type(latent).of(omega, expected)
    proposed = data.proposed(latent, [0, 1, 2, 3, 4], particles)
    torch.testing.assert_close(proposed.log_likelihood, latent.log_likelihood)


def test_threads_change_no_result_and_no_state():
    x, y = rows(30, 2)
    prior = KernelPrior(Grammar(), 2)
    start = SmcState.start(prior, 11, 2, torch.Generator().manual_seed(3))
    first, _ = smc_step(start, x[:20], y[:20], torch.Generator().manual_seed(4), SmcSettings())
    before = first.latent.factor.clone()
    found = [
        smc_step(first, x[20:], y[20:], torch.Generator().manual_seed(5), SmcSettings(n_jobs=n_jobs))[0]
        for n_jobs in (None, 2)
    ]
    assert torch.equal(first.latent.factor, before)
    assert found[0].log_evidence == found[1].log_evidence
    assert found[0].particles.structures == found[1].particles.structures
    assert torch.equal(found[0].latent.factor, found[1].latent.factor)
