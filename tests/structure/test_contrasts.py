"""Contrasts of classes against the latents of classes written out."""

from __future__ import annotations

import pytest
import torch

from sureshot.structure.contrasts import Contrasts
from tests.structure.oracles import F64, contrast_covariance, differences, positive_definite

Y = torch.tensor([0, 2, 1, 1, 0])


@pytest.mark.parametrize("n_classes", [3, 4])
def test_their_covariance_is_that_of_differences_of_latents(n_classes: int) -> None:
    gram, nugget = positive_definite(2, 5), torch.tensor([0.1, 0.7], dtype=F64)
    contrasts = Contrasts.of_labels(Y, n_classes)
    found = contrasts.covariance(contrasts, gram, nugget)
    whole = gram + nugget[:, None, None] * torch.eye(5, dtype=F64)
    torch.testing.assert_close(found, contrast_covariance(whole, Y, n_classes))
    known = contrasts.agreement(contrasts)
    assert torch.equal(contrasts.covariance(contrasts, gram, nugget, known), found)
    few = contrasts.chosen(torch.tensor([0, 3, 4]))
    assert torch.equal(few.covariance(contrasts, gram, nugget), found[:, [0, 3, 4]])


def test_what_they_have_to_do_with_classes() -> None:
    contrasts, f = Contrasts.of_labels(Y, 3), torch.randn(3, 5, dtype=F64)
    of_classes = contrasts.of_classes(3)
    values = (of_classes * f[:, contrasts.row].mT).sum(-1)
    torch.testing.assert_close(values, differences(Y, 3) @ f.flatten())


def test_two_classes_are_the_logistic_model() -> None:
    """One contrast for each row, with the kernel itself, up to the labels' signs."""
    y, gram = torch.tensor([0, 1, 1, 0]), positive_definite(4)
    contrasts = Contrasts.of_labels(y, 2)
    signs = (2 * y - 1).to(F64)
    found = contrasts.covariance(contrasts, gram, torch.tensor(0.0))
    torch.testing.assert_close(found, signs.unsqueeze(-1) * gram * signs)


def test_later_classes_bring_the_contrasts_of_rows_before() -> None:
    earlier, later = Y[:3].clamp_max(1), torch.tensor([2, 0, 3])
    together = Contrasts.of_labels(torch.cat([earlier, later]), 4)
    first = Contrasts.of_labels(earlier, 2)
    more = Contrasts.of_labels(earlier, 4, known=2).followed_by(Contrasts.of_labels(later, 4, 3))
    both = first.followed_by(more)
    assert len(more) == 3 * 2 + 3 * 3

    def listed(contrasts: Contrasts) -> list[tuple[int, int, int]]:
        return sorted(zip(contrasts.row.tolist(), contrasts.own.tolist(), contrasts.other.tolist(), strict=True))

    assert listed(both) == listed(together)
    assert len(set(listed(both))) == len(both)


def test_batches_of_rows_give_the_contrasts_of_all() -> None:
    together = Contrasts.of_labels(Y, 3)
    built = Contrasts.none()
    for n, label in enumerate(Y):
        built = built.followed_by(Contrasts.of_labels(label.unsqueeze(0), 3, n))
    for part in ("row", "own", "other"):
        assert torch.equal(getattr(built, part), getattr(together, part))


def test_one_class_has_none() -> None:
    assert len(Contrasts.of_labels(torch.zeros(3, dtype=torch.int64), 1)) == len(Contrasts.none()) == 0
