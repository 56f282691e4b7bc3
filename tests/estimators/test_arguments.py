"""A type checker sees wrong arguments: each line that is ignored here would be an unused remark, were they not seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from sureshot import FewShotClassifier, GPClassifier, KernelSearchClassifier, TreeGPClassifier, pipeline_call

X = np.array([[0.0, 1.0], [1.0, 0.0], [0.2, 0.9], [0.9, 0.1]])
Y = ["a", "b", "a", "b"]


def test_right_arguments_have_types() -> None:
    model = GPClassifier(kernel="rbf", random_state=0, class_prior="uniform", objective=None)
    model.fit(X, Y).fit(pd.DataFrame(X), pd.Series(Y)).fit(X.tolist(), np.array(Y), sample_weight=[1, 2, 1, 1])
    model.partial_fit(torch.from_numpy(X), Y, classes=["c"], row_id=[1, 2, 3, 4]).forget("c").forget(rows=1)
    model.predict(list(X))
    pipeline_call(model, "outlier_score", X)
    GPClassifier(kernel="cosine", objective=None).fit(scipy.sparse.csr_matrix(X), Y)


def test_wrong_arguments_are_seen() -> None:
    wrong: list[Any] = [TypeError, ValueError]
    model = GPClassifier(kernel="rbf", objective=None).fit(X, Y)
    with pytest.raises(tuple(wrong)):
        model.predict(3)  # type: ignore[arg-type]
    with pytest.raises(tuple(wrong)):
        model.fit(X, None)  # type: ignore[arg-type]
    with pytest.raises(tuple(wrong)):
        model.fit({"x": 1}, Y)  # type: ignore[arg-type]
    with pytest.raises(tuple(wrong)):
        model.partial_fit(X, Y, sample_weight="heavy")  # type: ignore[arg-type]
    with pytest.raises(tuple(wrong)):
        GPClassifier(random_state="seed").fit(X, Y)  # type: ignore[arg-type]
    with pytest.raises(tuple(wrong)):
        FewShotClassifier(columns=["number"]).fit(X, Y)  # type: ignore[arg-type]
    with pytest.raises(tuple(wrong)):
        TreeGPClassifier(n_representatives="five").fit(X, Y)  # type: ignore[arg-type]
    with pytest.raises(tuple(wrong)):
        KernelSearchClassifier(schedule=3.5).fit(X, Y)  # type: ignore[arg-type]
