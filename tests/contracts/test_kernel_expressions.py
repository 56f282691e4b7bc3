"""The battery that every kernel expression passes: all leaves, all ways to compose them."""

import copy
import json
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor

from sureshot.kernels import (
    KINDS,
    RBF,
    Additive,
    Brownian,
    CenteredLinear,
    Columns,
    Constant,
    Cosine,
    Expression,
    GammaExponential,
    Interactions,
    Laplacian,
    Linear,
    Matern,
    Periodic,
    Polynomial,
    Product,
    RationalQuadratic,
    Scale,
    SpectralMixture,
    Sum,
    UnitSphere,
    describe,
    evaluate,
    kernel_from_json,
)
from sureshot.kernels.shared_rows import SharedRows

WIDTH = 4
F64 = torch.float64
CENTER = [0.3, -0.2, 0.1, 0.5]
CASES: dict[str, Expression] = {
    "RBF(0.7)": RBF(0.7),
    "RBF([0.5, 0.7, 1.1, 2.0])": RBF([0.5, 0.7, 1.1, 2.0]),
    "Matern(0.5, 1.3)": Matern(0.5, 1.3),
    "Matern(1.5, [0.5, 0.7, 1.1, 2.0])": Matern(1.5, [0.5, 0.7, 1.1, 2.0]),
    "Matern(2.5, 0.8)": Matern(2.5, 0.8),
    "RationalQuadratic(0.9, 1.7)": RationalQuadratic(0.9, 1.7),
    "GammaExponential(1.2, 0.6)": GammaExponential(1.2, 0.6),
    "GammaExponential(0.9, 2)": GammaExponential(0.9, 2.0),
    "GammaExponential([0.5, 0.7, 1.1, 2.0], 1.5)": GammaExponential([0.5, 0.7, 1.1, 2.0], 1.5),
    "Laplacian(3)": Laplacian(3.0),
    "Laplacian([2.0, 3.0, 4.0, 5.0])": Laplacian([2.0, 3.0, 4.0, 5.0]),
    "Periodic(3, 1.3)": Periodic(3.0, 1.3),
    "Periodic([2.0, 3.0, 4.0, 5.0], [1.7, 1.2, 2.1, 1.9])": Periodic([2.0, 3.0, 4.0, 5.0], [1.7, 1.2, 2.1, 1.9]),
    "Linear(0.25)": Linear(0.25),
    "Linear([0.1, 0.2, 0.3, 0.4])": Linear([0.1, 0.2, 0.3, 0.4]),
    "CenteredLinear(0.25)": CenteredLinear(CENTER, 0.25),
    "CenteredLinear([0.1, 0.2, 0.3, 0.4])": CenteredLinear(CENTER, [0.1, 0.2, 0.3, 0.4]),
    "Brownian(0.25)": Brownian(0.25),
    "Brownian([0.1, 0.2, 0.3, 0.4])": Brownian([0.1, 0.2, 0.3, 0.4]),
    "Cosine()": Cosine(),
    "Cosine(centred)": Cosine(CENTER),
    "0.4": Constant(0.4),
    "Polynomial(1, 0.5)": Polynomial(1, 0.5),
    "Polynomial(2, 0.5, 4)": Polynomial(2, 0.5, 4),
    "Polynomial(3, 0.7, 4)": Polynomial(3, 0.7, 4),
    "SpectralMixture([0.7, 0.4], [0.1 ... 0.6, 2 x 4], [0.1 ... 0.3, 2 x 4])": SpectralMixture(
        [0.7, 0.4], [[0.3, 0.1, 0.4, 0.2], [0.1, 0.2, 0.6, 0.5]], [[0.1, 0.2, 0.3, 0.1], [0.2, 0.1, 0.1, 0.2]]
    ),
    "SpectralMixture([0.7, 0.4], [[1.3], [0.2]], [[3.0], [0.4]])[2]": Columns(
        (2,), SpectralMixture([0.7, 0.4], [1.3, 0.2], [3.0, 0.4])
    ),
    "2.3 x RBF(0.7) + 0.1": 2.3 * RBF(0.7) + 0.1,
    "2.3 x (Linear(0.25) + 0.1 + Polynomial(2, 0.5))": 2.3 * (Linear(0.25) + 0.1 + Polynomial(2, 0.5)),
    "(RBF(1) + Linear(1)) x Matern(0.5, 2) x 0.5 x Periodic(4, 1)": (
        (RBF() + Linear()) * Matern(0.5, 2.0) * (0.5 * Periodic(4.0))
    ),
    "RBF(0.5)[0, 2] + 1.5 x Linear(1)[3]": Columns((0, 2), RBF(0.5)) + 1.5 * Columns((3,), Linear()),
    "(RBF(0.5)[1] + Cosine())[0, 2, 3]": Columns((0, 2, 3), Columns((1,), RBF(0.5)) + Cosine()),
    "(1.5 x RBF([0.5, 2.0])[1, 0])[0, 2, 3]": Columns((0, 2, 3), 1.5 * Columns((1, 0), RBF([0.5, 2.0]))),
    "2 x Additive(Matern(1.5, 0.8)) + 0.1": 2 * Additive(Matern(1.5, 0.8)) + 0.1,
    "Additive(RationalQuadratic(0.7, 1.2))[0, 2, 3]": Columns((0, 2, 3), Additive(RationalQuadratic(0.7, 1.2))),
    "0.7 x Interactions(Matern(1.5, 0.8), 2.5)": 0.7 * Interactions(Matern(1.5, 0.8), 2.5),
    "Interactions(RBF(0.7), 3)[0, 2, 3]": Columns((0, 2, 3), Interactions(RBF(0.7))),
    "UnitSphere(Matern(1.5, 0.8) + Linear(1), centred)": UnitSphere(Matern(1.5, 0.8) + Linear(), CENTER),
    "UnitSphere(Linear(0.5)[0, 1])[3, 2, 1]": Columns((3, 2, 1), UnitSphere(Columns((0, 1), Linear(0.5)))),
}
everywhere = pytest.mark.parametrize("kernel", CASES.values(), ids=CASES.keys())


def _rows(*shape: int, seed: int = 0, dtype: torch.dtype = F64) -> Tensor:
    return torch.randn(*shape, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def _close(first: Tensor, second: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(first, second, rtol=tolerance, atol=tolerance)


def _kinds(kernel: Expression) -> set[str]:
    data = json.dumps(kernel.to_json())
    return {name for name in KINDS if f'"kernel": "{name}"' in data}


def test_every_kind_has_a_case() -> None:
    assert set().union(*map(_kinds, CASES.values())) == {name for name, kind in KINDS.items() if kind.in_files}


@pytest.mark.parametrize("text", CASES)
def test_it_prints_as_mathematics(text: str) -> None:
    assert str(CASES[text]) == repr(CASES[text]) == text
    assert describe(CASES[text].to_gpytorch()) == text


@everywhere
def test_the_matrix_is_exactly_symmetric_and_positive_semidefinite(kernel: Expression) -> None:
    gram = kernel(_rows(40))
    assert torch.equal(gram, gram.mT)
    eigenvalues = torch.linalg.eigvalsh(gram)
    assert eigenvalues[0] > -1e-13 * eigenvalues[-1]


@everywhere
@pytest.mark.parametrize("dtype", [F64, torch.float32])
def test_it_matches_its_twin_in_gpytorch(kernel: Expression, dtype: torch.dtype) -> None:
    kernel, x, z = kernel.to(dtype), _rows(9, dtype=dtype), _rows(5, seed=1, dtype=dtype)
    twin = kernel.to_gpytorch()
    assert {parameter.dtype for parameter in twin.parameters()} <= {dtype}
    tolerance = 1e-12 if dtype == F64 else 1e-4
    off = ~torch.eye(9, dtype=torch.bool)  # on it GPyTorch's distances carry the square root of the rounding error
    with torch.no_grad():
        _close(kernel(x, z), twin(x, z).to_dense(), tolerance)
        _close(kernel(x)[off], twin(x).to_dense()[off], tolerance)
        _close(kernel.diagonal(x), twin(x, diag=True), tolerance)
        _close(evaluate(twin, x), kernel(x), tolerance)


@everywhere
def test_it_comes_back_from_gpytorch(kernel: Expression) -> None:
    x, twin = _rows(7), kernel.to_gpytorch()
    back = Expression.from_gpytorch(twin)
    assert _kinds(back) - {"Sum"} == _kinds(kernel) - {"Sum"}
    with torch.no_grad():
        _close(back(x), kernel(x))


@everywhere
def test_gradients_flow_to_the_parameters_in_gpytorch(kernel: Expression) -> None:
    twin = kernel.to_gpytorch()
    total = evaluate(twin, _rows(5), _rows(6, seed=1)).square().sum()
    assert total.requires_grad == bool(kernel.parameters)
    if total.requires_grad:
        total.backward()
    assert all(parameter.grad is not None and bool(parameter.grad.isfinite().all()) for parameter in twin.parameters())


@everywhere
def test_the_diagonal_agrees(kernel: Expression) -> None:
    x, z = _rows(9), _rows(9, seed=1)
    assert torch.equal(kernel(x).diagonal(), kernel.diagonal(x))
    _close(kernel.diagonal(x, z), kernel(x, z).diagonal())
    _close(kernel.diagonal(x, x.clone()), kernel.diagonal(x))


@everywhere
def test_a_query_does_not_depend_on_those_beside_it(kernel: Expression) -> None:
    x, queries = _rows(20), _rows(6, seed=1)
    beside = torch.cat([queries, torch.full((1, WIDTH), 1e6, dtype=F64)])
    _close(kernel(x, beside)[:, :6], kernel(x, queries))
    _close(torch.cat([kernel(x, query.unsqueeze(0)) for query in queries], dim=-1), kernel(x, queries))


@everywhere
def test_the_block_of_two_sets_is_part_of_the_whole(kernel: Expression) -> None:
    x, z = _rows(6), _rows(3, seed=1)
    _close(kernel(x, z), kernel(torch.cat([x, z]))[:6, 6:], 1e-11)


@everywhere
def test_batches_of_parameters_and_of_rows_equal_their_members(kernel: Expression) -> None:
    factors = torch.linspace(0.4, 1.0, 3, dtype=F64)
    own = kernel.parameters
    members = [kernel.replace(**{name: factor * value for name, value in own.items()}) for factor in factors]
    batched = {name: torch.stack([member.parameters[name] for member in members]).unsqueeze(1) for name in own}
    together = kernel.replace(**batched)  # parameters (3, 1, ...), rows (2, ...)
    x, z = _rows(2, 6), _rows(5, seed=1)
    if own:
        assert together(x).shape == (3, 2, 6, 6)
        twin = together.to_gpytorch()
        with torch.no_grad():
            _close(evaluate(twin, x, z), together(x, z))
    for i, member in enumerate(members if own else []):
        for j in range(2):
            _close(together(x)[i, j], member(x[j]))
            _close(together(x, z)[i, j], member(x[j], z))
            _close(together.diagonal(x).expand(3, 2, 6)[i, j], member.diagonal(x[j]))
            if (features := together.features(x)) is not None:
                _close(features[i, j], member.features(x[j]))


@everywhere
def test_rows_that_share_distances_give_the_same_values(kernel: Expression) -> None:
    factors = torch.linspace(0.4, 1.0, 3, dtype=F64)
    own = kernel.parameters
    batched = kernel.replace(**{name: torch.stack([factor * own[name] for factor in factors]) for name in own})
    x, z = _rows(6), _rows(5, seed=1)
    for rows, others in ((SharedRows(x), x), (SharedRows(x, z), z), (SharedRows(x, x[2:]), x[2:])):
        _close(kernel.on(rows), kernel.values(x, others, False))
        _close(batched.on(rows), batched.values(x, others, False))
        _close(kernel.on(rows), kernel.values(x, others, False))


@everywhere
def test_gradients_agree_with_finite_differences(kernel: Expression) -> None:
    names = list(kernel.parameters)

    def value(x: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        made = kernel.replace(**dict(zip(names, parameters, strict=True)))
        return made(x), made(x, x[:2] + 0.1), made.diagonal(x, x + 0.1)

    parameters = [value.clone().requires_grad_() for value in kernel.parameters.values()]
    assert torch.autograd.gradcheck(value, (_rows(4).requires_grad_(), *parameters), atol=1e-6, rtol=1e-5)


@everywhere
def test_gradients_stay_finite_with_equal_rows(kernel: Expression) -> None:
    x = torch.cat([_rows(5), _rows(5)[:2]]).requires_grad_()
    parameters = [value.clone().requires_grad_() for value in kernel.parameters.values()]
    made = kernel.replace(**dict(zip(kernel.parameters, parameters, strict=True)))
    total = made(x).sum() + made(x, x.detach()).sum()
    if total.requires_grad:
        gradients = torch.autograd.grad(total, [x, *parameters], allow_unused=True)
        assert all(bool(gradient.isfinite().all()) for gradient in gradients if gradient is not None)


@everywhere
def test_features_reproduce_the_matrix(kernel: Expression) -> None:
    x, z = _rows(2, 9), _rows(5, seed=1)
    phi, other = kernel.features(x), kernel.features(z)
    if phi is None or other is None:
        assert kernel.rank(WIDTH) is None
        assert torch.linalg.matrix_rank(kernel(_rows(36))) > 20
        return
    assert phi.shape == (2, 9, kernel.rank(WIDTH))
    _close(phi @ phi.mT, kernel(x))
    _close(phi @ other.mT, kernel(x, z))


@everywhere
def test_json_holds_all_of_it(kernel: Expression) -> None:
    again = kernel_from_json(json.loads(json.dumps(kernel.to_json(), allow_nan=False)))
    assert again == kernel
    assert hash(again) == hash(kernel)
    assert torch.equal(again(_rows(5)), kernel(_rows(5)))


@everywhere
def test_copies_are_equal_and_other_values_are_not(kernel: Expression) -> None:
    for again in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel)), kernel.replace()):
        assert again == kernel
    for name, value in kernel.parameters.items():
        other = kernel.replace(**{name: 1.1 * value})
        assert other != kernel
        assert not torch.equal(other(_rows(5)), kernel(_rows(5)))
        assert other.replace(**{name: value}) == kernel


@pytest.mark.parametrize("columns", [(0, 2), (3,)])
def test_columns_left_out_do_not_matter(columns: tuple[int, ...]) -> None:
    x, z = _rows(6), _rows(6, seed=1)
    z[:, columns] = x[:, columns]
    kernel = Columns(columns, RBF(0.5) + Linear())
    assert torch.equal(kernel(x), kernel(z))
    _close(kernel(x), (RBF(0.5) + Linear())(x[:, columns]))


@pytest.mark.parametrize("base", [Cosine(), UnitSphere(RBF()), UnitSphere(Matern(1.5) * Linear())])
def test_lengths_do_not_matter_on_the_sphere(base: Any) -> None:
    x = _rows(6)
    _close(base(x * torch.linspace(1e-9, 1e9, 6, dtype=F64).unsqueeze(-1)), base(x))


def test_the_cases_of_composition_are_what_their_names_say() -> None:
    x, z = _rows(6), _rows(5, seed=1)
    a, b = RBF(0.7), Linear(0.25)
    _close(Sum((a, b))(x, z), a(x, z) + b(x, z))
    _close(Product((a, b))(x, z), a(x, z) * b(x, z))
    _close(Scale(2.5, a)(x, z), 2.5 * a(x, z))


def test_an_additive_kernel_is_the_mean_over_columns() -> None:
    x, z = _rows(40), _rows(5, seed=1)
    each = torch.stack([RBF(0.7)(x[:, [d]], z[:, [d]]) for d in range(WIDTH)])
    _close(Additive(RBF(0.7))(x, z), each.mean(0))
    wild = z.clone()
    wild[:, 1] = 1e200
    _close(Additive(RBF(0.7))(x, wild), each[[0, 2, 3]].sum(0) / WIDTH)


def test_interactions_are_products_over_columns() -> None:
    x, z = _rows(40), _rows(5, seed=1)
    each = torch.stack([RBF(0.7)(x[:, [d]], z[:, [d]]) for d in range(WIDTH)])
    _close(Interactions(RBF(0.7), 2.5)(x, z), ((each - 1) * 2.5 / WIDTH).exp().prod(0))
    _close(Interactions(RBF(0.7), 1e-6)(x, z), 1 + 1e-6 * (Additive(RBF(0.7))(x, z) - 1))


@pytest.mark.parametrize("base", [Linear(), RBF([0.5, 0.7, 1.1, 2.0]), 2 * RBF()])
@pytest.mark.parametrize("kind", [Additive, Interactions])
def test_columns_by_themselves_need_one_length_scale(kind: type[Expression], base: Expression) -> None:
    with pytest.raises(ValueError, match=f"{kind.__name__} takes a stationary leaf with one length-scale"):
        kind(base)


@pytest.mark.parametrize("gamma", [0.1, 0.5, 2.0])
def test_rough_kernels_are_one_for_equal_rows_in_gpytorch_too(gamma: float) -> None:
    kernel, x = GammaExponential(0.8, gamma), _rows(6)[[0, 1, 2, 3, 4, 5, 0]]
    with torch.no_grad():
        _close(kernel.to_gpytorch()(x).to_dense(), kernel(x))
        assert kernel(x)[0, 6] == 1
