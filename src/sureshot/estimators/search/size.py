"""How large a search over kernels may be, and how long it would take."""

from __future__ import annotations

from sureshot.computing.blocks import entries_by_inducing, entries_by_particles
from sureshot.computing.memory import in_bytes, memory_budget
from sureshot.estimators.search.settings import SearchSettings
from sureshot.warned import warn

MOST_CONTRASTS = 2000
LONG = 60.0  # seconds that are told beforehand


def check_size(
    settings: SearchSettings, n_rows: float, n_classes: int, known: bool = False, of_numbers: bool = False
) -> None:
    """Refuse more rows than can be worked with, with an estimate and what to try; warn of what takes long.

    Where a model is `known`, what its first batch settled can be changed by fitting anew only.
    """
    if settings.window is not None:
        n_rows = min(n_rows, settings.window)
    pairs, latents = max(1, n_classes - 1), 1 if n_classes == 2 else n_classes
    n, sweeps = n_rows * pairs, settings.smc(None).n_sweeps
    available, anew = memory_budget("auto"), "fit anew and " if known else ""
    other = "GPRegressor" if of_numbers else "GPClassifier"
    what = f"{n_rows:.0f} rows" + (f" of {n_classes} classes, {n:.0f} comparisons" if n_classes > 2 else "")
    if settings.n_inducing is None:
        size, unit = n, "rows" if of_numbers else "comparisons"
        needed = 8.0 * entries_by_particles(settings.n_particles, n)
        seconds = seconds_of_a_batch(settings.n_particles, sweeps, n)
        few = 0 if of_numbers else _inducing_that_fit(settings.n_particles, n_rows, latents, available)
        through = f" see kernels through inducing inputs (n_inducing={few})," if few else ""
        way_out = (
            f"{anew}keep the latest rows only (window={MOST_CONTRASTS // (2 * pairs)}),{through} take fewer rows or "
            "particles,"
        )
    else:
        most = min(settings.n_inducing, n_rows)
        size, unit = most * latents, "weights (inducing inputs times classes)"
        what += f", {most:.0f} inducing inputs"
        needed = 8.0 * entries_by_inducing(settings.n_particles, n_rows, most, latents)
        seconds = seconds_through_inducing(settings.n_particles, sweeps, n_rows, most, latents)
        way_out = f"{anew}take a smaller n_inducing, keep the latest rows only (window=), take fewer particles,"
    if size <= MOST_CONTRASTS and needed <= available:
        if seconds > LONG:
            warn(
                f"a search over kernels with {what} and {settings.n_particles} particles takes about "
                f"{_in_time(seconds)} for the last batch alone: to shorten it, {way_out} or use {other}.",
            )
        return
    raise MemoryError(
        f"a search over kernels with {what} and {settings.n_particles} particles would take about "
        f"{in_bytes(needed)} and {_in_time(seconds)} for the last batch alone; at most {MOST_CONTRASTS} {unit} "
        f"and {in_bytes(available)} may be used: {way_out} or use {other}."
    )


def _inducing_that_fit(n_particles: int, n_rows: float, n_latents: int, available: float) -> int:
    """Inducing inputs with which a search is not refused, at most 100; 0 if there are none."""
    most = min(100, MOST_CONTRASTS // n_latents)
    while most and 8.0 * entries_by_inducing(n_particles, n_rows, most, n_latents) > available:
        most //= 2
    return most


def seconds_of_a_batch(n_particles: int, n_sweeps: int, n: float) -> float:
    """About how long the particles are moved after a batch with which there are n comparisons, on one core.

    A sweep of a particle makes some twenty kernel matrices, n^2 transcendental functions each, and their Cholesky
    factors, n^3 / 3 multiplications each. The constants are those of one core of a Xeon with AMX, which
    ``benchmarks/test_structure.py`` compares with any other; other work on the machine comes on top.
    """
    return n_particles * max(1, n_sweeps) * (4.5e-7 * n**2 + 1.5e-10 * n**3)


def seconds_through_inducing(
    n_particles: int, n_sweeps: int, n_rows: float, n_inducing: float, n_latents: int
) -> float:
    """The same where kernels are seen through inducing inputs, each latent by as many weights."""
    of_row = 3e-7 * n_inducing + 5e-10 * (n_inducing * n_latents) ** 2
    return n_particles * max(1, n_sweeps) * n_rows * of_row


def _in_time(seconds: float) -> str:
    """For people, such as "3 minutes"."""
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(1, seconds):.0f} seconds"
