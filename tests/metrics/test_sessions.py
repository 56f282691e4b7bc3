from __future__ import annotations

import numpy as np
import pytest

from sureshot.metrics import accuracy_by_session, forgetting, harmonic_mean, performance_drop


def test_forgetting_by_hand() -> None:
    # After session 1: .9 - .8. After session 2: (.9 - .6 + .7 - .5) / 2. After session 3, where session 0 is better
    # than just before but not than ever: (.9 - .7 + .7 - .5 + .4 - .4) / 3.
    r = [
        [0.9, np.nan, np.nan, np.nan],
        [0.8, 0.7, np.nan, np.nan],
        [0.6, 0.5, 0.4, np.nan],
        [0.7, 0.5, 0.4, 1.0],
    ]
    np.testing.assert_allclose(forgetting(r), [np.nan, 0.1, 0.25, 0.4 / 3])


def test_forgetting_is_negative_where_earlier_sessions_improve_and_ignores_what_is_above_the_diagonal() -> None:
    np.testing.assert_allclose(forgetting([[0.5, 7.0], [0.6, 0.2]]), [np.nan, -0.1])


def test_forgetting_is_from_the_best_so_far_which_need_not_be_the_first() -> None:
    np.testing.assert_allclose(forgetting([[0.5, 0, 0], [0.7, 0.4, 0], [0.6, 0.4, 0.9]]), [np.nan, -0.2, 0.05])


def test_accuracy_by_session_by_hand() -> None:
    found = accuracy_by_session([True, False, True, True], [0, 0, 2, 2], 3)
    np.testing.assert_allclose(found, [0.5, np.nan, 1.0])


def test_drop_and_harmonic_mean_by_hand() -> None:
    assert performance_drop([0.9, 0.95, 0.6]) == pytest.approx(0.3)
    assert harmonic_mean(0.9, 0.3) == pytest.approx(0.45)
    assert harmonic_mean(0.8, 0.0) == 0.0
    assert harmonic_mean(0.0, 0.0) == 0.0
    assert np.isnan(harmonic_mean(0.8, float("nan")))


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(ValueError, match=r"accuracies: expected a square matrix .* got shape \(1, 2\)"):
        forgetting([[0.5, 0.5]])
    with pytest.raises(ValueError, match="accuracies: expected numbers from 0 to 1"):
        forgetting([[50.0, 0], [60.0, 70.0]])
    with pytest.raises(ValueError, match="session_of: expected 0 to 1, got 2"):
        accuracy_by_session([True, True], [0, 2], 2)
    with pytest.raises(ValueError, match="session_of: expected a session for each"):
        accuracy_by_session([True], [0, 1], 2)
    with pytest.raises(ValueError, match="accuracies: expected one for each session"):
        performance_drop([])
