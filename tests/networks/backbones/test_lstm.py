"""The LSTM encoder against its equations written out, and its pooling."""

from __future__ import annotations

import pytest
import torch

from sureshot.networks.backbones import LSTM, make_backbone

X = torch.randn(4, 9, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def states_by_hand(backbone: LSTM, x: torch.Tensor) -> torch.Tensor:
    """Hochreiter & Schmidhuber with forget gates, one direction, one layer: (B, L, hidden)."""
    p = dict(backbone.network.named_parameters())
    h = c = x.new_zeros(len(x), backbone.n_features)
    states = []
    for step in x.unbind(1):
        gates = step @ p["weight_ih_l0"].T + h @ p["weight_hh_l0"].T + p["bias_ih_l0"] + p["bias_hh_l0"]
        i, f, g, o = gates.chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        states.append(h)
    return torch.stack(states, 1)


def test_features_are_the_equations() -> None:
    mean, last = (LSTM((9, 3), hidden=5, pooling=pooling).double() for pooling in ("mean", "last"))
    states = states_by_hand(mean, X)
    torch.testing.assert_close(mean(X), states.mean(1))
    torch.testing.assert_close(last(X), states[:, -1])


def test_the_second_direction_reads_backwards() -> None:
    both = LSTM((9, 3), hidden=5, bidirectional=True, pooling="last").double()
    single = LSTM((9, 3), hidden=5, pooling="last").double()
    weights = dict(both.network.named_parameters())
    with torch.no_grad():
        for key, value in single.network.named_parameters():
            value.copy_(weights[f"{key}_reverse"])
    assert both.n_features == 10
    torch.testing.assert_close(both(X)[:, 5:], single(X.flip(1)))


def test_initial_values() -> None:
    p = dict(LSTM((9, 3), hidden=32).network.named_parameters())
    torch.testing.assert_close(p["weight_hh_l0"][32:64] @ p["weight_hh_l0"][32:64].T, torch.eye(32), atol=1e-5, rtol=0)
    forget = p["bias_ih_l0"] + p["bias_hh_l0"]
    assert torch.equal(forget, torch.cat([torch.zeros(32), torch.ones(32), torch.zeros(64)]))


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="pooling must be 'mean' or 'last', got 'max'"):
        make_backbone("lstm", (9, 3), pooling="max")
    with pytest.raises(ValueError, match="hidden and layers must be at least 1, got 0 and 1"):
        make_backbone("lstm", (9, 3), hidden=0)
