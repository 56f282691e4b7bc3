"""What `GPClassifier()` does for some rows, columns, classes or kinds only, each with what would be without it.

A switch puts something simpler in the place of one name of the source while it is on. Where it can change anything is
said of `facts` of a support, so that nobody waits for fits that are the same. What serves more than 2000 rows is not
here, nor what only updates meet.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Any

import numpy as np
import torch

from sureshot.estimators.gp import fitting, options
from sureshot.estimators.gp.tuning import relevance, screening
from sureshot.estimators.rows.labelled_rows import merge_rows
from sureshot.estimators.rows.preprocessing import fit_scaling
from sureshot.estimators.rows.ranks import Ranks
from sureshot.estimators.rows.support import Support, is_compared_whole
from sureshot.kernels import is_unit_norm

Facts = Mapping[str, float]
_ANY = 10**9
_climb: Any = relevance.climb_without_folds  # as they are without a switch
_beats: Any = screening.beats
_rules_for: Any = options.rules_for
_fit_member: Any = fitting._fit_member
_with_temperature: Any = fitting._with_temperature


@dataclass(frozen=True)
class Switch:
    """A name of the source, and what it becomes."""

    name: str  # what is without, as tables call it
    target: str  # under `sureshot`
    value: Any
    where: str  # it can change anything: an expression of `facts`
    slower: float = 1.0  # as how many usual fits one takes, roughly

    def can_change(self, facts: Facts) -> bool:
        """A fit to a support."""
        return bool(eval(self.where, {}, dict(facts)))

    @contextmanager
    def on(self) -> Iterator[None]:
        """While the block runs, in this process."""
        owner, _, name = self.target.rpartition(".")
        place = resolve_name(f"sureshot.{owner}")  # a module or a class
        before = inspect.getattr_static(place, name)
        setattr(place, name, self.value)
        try:
            yield
        finally:
            setattr(place, name, before)


def facts_of(
    x: np.ndarray,  # (N, D), without gaps
    y: np.ndarray,  # (N,)
) -> Facts:
    """What conditions ask of a support; truths are 0 and 1."""
    labels, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    rows = merge_rows(x, codes, np.ones(len(y)))
    scaling = fit_scaling(rows.x, rows.weight, "auto")
    support = Support.of(rows, len(labels), scaling, torch.device("cpu"))
    unit, n_rows, columns = is_unit_norm(rows.x), *support.x.shape
    scale, inputs = torch.from_numpy(scaling.scale), support.x.numpy()
    commensurate = not unit and float(scale.quantile(0.1)) * 100 > float(scale.max())
    return {
        "unit": unit,  # embeddings
        "rows": n_rows,  # distinct ones
        "columns": columns,  # that vary
        "classes": len(labels),
        "able": support.n_able,  # rows whose class keeps a row when they are left out
        "covered": support.covered,  # the share of the classes that these are of
        "telling": support.can_select_kernels,
        "part": not is_compared_whole(support),  # whether only a part of the rows compares kernels
        "share": options._effective_share(scale) if commensurate else 0.0,  # of columns that seem to have one unit
        "bends": not unit and Ranks.of(inputs, rows.weight).bends(inputs),  # whether ranks are no affine map
        "uneven": bool((counts != counts[0]).any()),  # whether classes have different numbers of rows
        "single": bool(counts.max() > 3 and 2 * (counts == 1).sum() >= len(counts)),
        "contradicted": bool((rows.left_out_shares < 1).any()),  # by equal rows of other labels
        "wild": scaling.limits is not None,  # whether a cell lies a million times farther out than others
    }


_WEIGHED = "not unit and able >= 50 and 1 < columns <= 300"
_CLIMBED = "not unit and able >= 15"
_BENT = "unit and able >= 50"
_SWITCHES: dict[str, tuple[tuple[Any, ...], ...]] = {
    "estimators.gp.tuning.choose": (
        ("no untuned families", "SOME_ROWS", 0, "not unit and able < 150"),
        ("untuned never alone", "FEWEST_TO_TUNE", 0, "not unit and able < 15"),
        ("untuned as of more rows", "FEW_ROWS", 0, "not unit and able < 50"),
        ("all families climbed", "MAX_CLIMBS_OF_AVERAGE", _ANY, _CLIMBED, 2.0),
        ("no relevance", "with_relevance", lambda *_: [], _WEIGHED),
        ("one setting of embeddings", "AVERAGED_ROWS", 0, "unit and able"),
        ("two kernels of many embeddings", "AVERAGED_ROWS", _ANY, "unit and rows > 1000", 3.0),
        ("labels never look random", "targets_look_random", lambda *_, **__: False, "unit and able"),
    ),
    "estimators.gp.plan": (
        ("no spectral scaling", "clear_spectral_scaling", lambda _: None, _BENT),
        ("spectral scaling of many embeddings", "AVERAGED_ROWS", _ANY, "unit and rows > 1000", 2.0),
    ),
    "estimators.gp.tuning.spectral": (
        ("spectral scaling by few rows", "FEW_ROWS", 2, "unit and 1 < able < 50"),
        ("spectral scaling by any gain", "MIN_GAIN", 0.0, _BENT),
    ),
    "estimators.gp.tuning.screening": (
        ("compared by few rows", "MIN_COMPARISONS", 2, "1 < able < 50 and (unit or able >= 15)"),
        ("hopeless families climbed", "HOPELESS", math.inf, _CLIMBED, 1.5),
        ("families far behind climbed", "FAR_BEHIND", math.inf, _CLIMBED),
        ("relevance by any gain", "MIN_GAIN", 0.0, _WEIGHED),
        ("relevance at all scales", "NEAREST_LENGTHSCALES", 7, _WEIGHED, 1.3),
        ("bent by two errors", "BENT_MARGIN", 2.0, _BENT),
        ("never bent alone", "BENT_MARGIN", math.inf, _BENT),
        ("bent by any gain", "beats", lambda *of, margin=0.0: _beats(*of[:3], *(of[3:] or (margin,))), _BENT),
    ),
    "estimators.gp.tuning.objective": (
        ("random by any share", "RANDOM_SHARE", 0.0, "unit and able"),
        ("random by any gain", "RANDOM_GAIN", 0.0, "unit and able"),
    ),
    "estimators.gp.tuning.stacking": (
        ("five members of few rows", "MOST_OF_FEW", 5, "not unit and 15 <= able < 50"),
        ("any number of members", "MOST_MEMBERS", _ANY, "not unit and able >= 50"),
        ("light members stay", "SMALLEST_WEIGHT", 0.0, _CLIMBED),
    ),
    "estimators.gp.tuning.relevance": (
        ("relevance of few rows", "MIN_ROWS", 4, "not unit and 15 <= able < 50 and 1 < columns <= 300", 1.5),
        ("relevance of many columns", "MAX_COLUMNS", _ANY, "not unit and able >= 50 and columns > 300", 3.0),
        ("one spread of relevance", "climb_without_folds", lambda *of: _climb(*of, (2.0,)), _WEIGHED),
        ("relevance climbs on", "LEAST_SHARE", 0.0, _WEIGHED),
    ),
    "estimators.gp.tuning.family_search": (
        ("untuned at the usual scale", "UNTUNED_OUTPUT_SCALE", 10.0, "not unit and able < 150"),
    ),
    "estimators.gp.noise": (("no noise by all rows", "LEVELS", (1.0,), "part"),),
    "estimators.gp.fitting": (
        ("no refits of few rows", "REFITTED_ROWS", 0, "classes > 2 and rows <= 300"),
        ("no weights by all rows", "_weighed", lambda members, left_out, _: (members, left_out), "part and telling"),
        ("two kernels by sites", "_fit_member", lambda *of: _fit_member(*of[:-1], False), "unit and able"),
        (
            "relevance at its own temperature",
            "_with_temperature",
            lambda settings, plan, *of: _with_temperature(settings, replace(plan, least_temperature=0.0), *of),
            _WEIGHED,
        ),
    ),
    "estimators.gp.options": (
        (
            "one temperature of kernels",
            "ONE_SHOT_TEMPERATURE",
            dict.fromkeys(options.ONE_SHOT_TEMPERATURE, 0.35),
            "able < 150",
        ),
        ("temperature of any columns", "BY_COLUMNS", 0.0, "not telling"),
        ("sizes alone always", "LEAST_SHARE", 0.0, "not telling and 0 < share < .5 and columns >= 8"),
        ("sizes alone never", "LEAST_SHARE", 2.0, "not telling and .5 <= share < .95 and columns >= 8"),
        ("nearly equal sizes tried", "EQUAL_SHARE", 2.0, "share >= .95 and columns >= 8"),
        ("no directions of tables", "directions_for", lambda *_: (), "share and able >= 15 and rows <= columns"),
        ("no product over columns", "INTERACTING_COLUMNS", 0, "not unit and 1 < columns <= 64"),
        ("product over many columns", "INTERACTING_COLUMNS", _ANY, "not unit and 64 < columns <= 300", 3.0),
        ("plug-in rule alone", "rules_for", lambda *_: ("plug_in",), "classes == 2"),
        ("integral first of embeddings", "rules_for", lambda *of: _rules_for(*of[:2], False), "unit and classes == 2"),
        ("plug-in first of tables", "rules_for", lambda *of: _rules_for(*of[:2], True), "not unit and classes == 2"),
        ("intercept of variance 1", "INTERCEPT_OF_EMBEDDINGS", 1.0, "unit"),
    ),
    "estimators.rows.support": (
        (
            "all rows telling",
            "Support.can_select_kernels",
            property(lambda rows: rows.n_able > 0),
            "able and not telling",
        ),
        ("rows of some classes in full", "Support.usable", property(lambda rows: rows.able), "able and covered < 1"),
        ("400 rows of wide tables", "WIDE_ROWS", 0, "rows > 400 and columns > 40"),
        ("400 rows of 1000 and more", "SHARE_OF_ONE", 0.0, "rows > 1000"),
        ("cells by classes alone", "TUNING_CELLS", 0, "part and classes > 5"),
        ("as many rows of any classes", "CLASSES", _ANY, "part and classes > 5", 4.0),
        ("no least rows of a class", "MIN_ROWS_PER_CLASS", 0, "part and classes > 22"),
        ("all classes compared", "MAX_TUNING_CLASSES", _ANY, "classes > 30", 4.0),
        ("400 rows always", "_budget", lambda *_: 400, "part or rows > 400", 2.0),
    ),
    "estimators.rows.labelled_rows": (
        (
            "copies left out together",
            "LabelledRows.left_out_shares",
            property(lambda rows: np.ones(len(rows.y))),
            "contradicted",
        ),
    ),
    "estimators.rows.preprocessing": (
        (
            "common unit never",
            "COMMENSURATE_COLUMNS",
            _ANY,
            "columns >= 8 and (0 < share < .95 or share and able >= 15 and rows <= columns)",
        ),
        ("common unit of few columns", "COMMENSURATE_COLUMNS", 2, "0 < share < .95 and columns < 8"),
        ("wild cells as they are", "_limits_of_wild", lambda *_: None, "wild"),
    ),
    "estimators.rows.ranks": (
        ("no ranks", "STRAIGHT", -1.0, "bends"),
        ("ranks always", "STRAIGHT", 2.0, "not unit and not bends"),
        ("knots at all rows", "MAX_KNOTS", _ANY, "bends and rows > 64"),
        ("ranks end at the last knot", "GROWTH", 0.0, "bends"),
        ("knots between ties", "_lower_of_ties", lambda quantiles, _: quantiles, "bends"),
    ),
    "estimators.classes.temperature": (("no label noise", "RIGHT_LABELS", 1e9, "able"),),
    "estimators.classes.class_weights": (
        ("single rows not weighed", "_outweighs_single_rows", lambda *_: False, "unit and single"),
        ("one row never tells", "ONE_TELLS", 2.0, "unit and single"),
        ("one row always tells", "ONE_TELLS", 0.0, "unit and single"),
    ),
    "estimators.classes.class_prior": (
        ("prior of the rows", "ADDED_ROWS", 0.0, "unit and uneven"),
        ("uniform prior", "ADDED_ROWS", 1e9, "unit and uneven"),
    ),
    "kernels.unit_sphere": (("embeddings as tables", "FEWEST_FEATURES", _ANY, "unit and classes <= 30", 5.0),),
}

SWITCHES = {
    name: Switch(name, f"{module}.{attribute}", *further)
    for module, of_module in _SWITCHES.items()
    for name, attribute, *further in of_module
}
"""By name."""
