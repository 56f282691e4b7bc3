"""The arguments and options of the commands, each once: a command lists names and defaults only.

Options that travel together are the fields of a frozen dataclass. A command takes one as an argument, and people give
its fields (`spread`).

Names of kernels, likelihoods, schemes and objectives are written out, since asking for them imports torch;
`tests/cli/test_options.py` says where they differ from those that there are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from typer import Argument, Option

from sureshot.data.checks import near

KERNELS = (
    "auto, cosine, linear, rbf, matern12, matern32, matern52, laplacian, polynomial1, polynomial2, additive_matern32, "
    "interactions_matern32, unit_rbf, unit_matern32"
)
LIKELIHOODS = "auto, logistic, one_vs_each, logistic_softmax, least_squares, softmax"
INFERENCES = "auto, mean_field, gibbs, natural_gradient, laplace"
OBJECTIVES = "auto, evidence, leave_one_out, none"
STANDARDIZE = "auto, true, false"
TASKS = "auto, classes, numbers"
STRATEGIES = "recommended, shared_root, session, rebuild"
GRAMMARS = "default, paper, series"
SCHEDULES = "logarithmic, linear, once"
FEW_SHOT_SETS = (
    "omniglot-lake, omniglot-vinyals, omniglot-choice, omniglot-emnist, miniimagenet, miniimagenet32, cub, "
    "miniimagenet-cub, cifar-fs, clinc150, folder, embeddings, texts, transfer"
)
DRAWN = ("functions", "sinusoids")


def check_name(option: str, name: str, known: str, **elsewhere: str) -> None:
    """Refuse what is none of the names known (`ValueError`), and say why others cannot be given here."""
    names = known.split(", ")
    if name in elsewhere:
        raise ValueError(f"{option} {name} {elsewhere[name]}; expected one of {known}")
    if name not in names:
        raise ValueError(f"{option}: expected one of {known}; got {name!r}{near(name, names)}")


LabelledData = Annotated[
    Path,
    Argument(
        metavar="DATA",
        help="Labelled rows: CSV (- reads standard input), Excel, Parquet or NPZ file, or a folder of .parquet files; "
        "for a learner of images, a folder with a sub-folder for each class.",
    ),
]
Target = Annotated[
    str | None,
    Option(
        "--target",
        "-t",
        metavar="COLUMN",
        help="The column of labels or numbers (of an NPZ file: the array, by default y or label).",
    ),
]
Kind = Annotated[
    list[str] | None,
    Option(
        metavar="COLUMN=KIND",
        help="What a column holds, if not what it looks like: number, category, date, text, ignore; may be repeated.",
    ),
]


@dataclass(frozen=True)
class Files:
    """How files of rows are read."""

    drop: Annotated[
        list[str] | None, Option(metavar="COLUMN", help="Leave out a column, or several: a,b; may be repeated.")
    ] = None
    row_id: Annotated[
        str | None,
        Option(
            "--id",
            metavar="COLUMN",
            help="Names of rows, each once: shown in what is written, never learnt; `fit` and `update` keep them for "
            "corrections.",
        ),
    ] = None
    separator: Annotated[
        str | None,
        Option(
            metavar="CHARACTER",
            help="Between cells: comma, semicolon, tab, bar, space or the character itself; by default as at the fit, "
            "or detected.",
        ),
    ] = None
    encoding: Annotated[str | None, Option(help="Of text files: utf-8, utf-16, latin-1, ...; by default detected.")] = (
        None
    )
    decimal: Annotated[str | None, Option(metavar=".|,", help="The decimal sign; by default detected.")] = None
    header: Annotated[
        bool | None,
        Option(
            "--header/--no-header",
            help="Whether the first line names the columns (otherwise they are 'column 1' and so on); by default as at "
            "the fit, which takes it for names.",
            show_default=False,
        ),
    ] = None
    missing: Annotated[
        list[str] | None,
        Option(metavar="TOKEN", help="A further text that marks a missing cell, such as unknown; may be repeated."),
    ] = None
    fold_case: Annotated[
        bool, Option("--fold-case", help="Labels that differ in upper and lower case only are one class.")
    ] = False
    sheet: Annotated[
        str | None, Option(metavar="NAME", help="Of an Excel file; by default as at the fit, or the first.")
    ] = None


ReportFolder = Annotated[Path | None, Option("--report", metavar="FOLDER", help="Write an HTML report to this folder.")]
Model = Annotated[Path, Argument(metavar="MODEL", help="A model's file, as fit, search and update write it.")]
DataRoot = Annotated[
    Path | None, Option("--data", metavar="FOLDER", help="The data root; by default that of SURESHOT_DATA.")
]

# demo
DemoFolder = Annotated[Path, Option("--output", "-o", metavar="FOLDER", help="Where the report goes.")]

# fit
ModelFile = Annotated[Path, Option("--output", "-o", metavar="MODEL", help="The model file to write (.safetensors).")]
FitSeed = Annotated[
    int | None,
    Option(min=0, help="Seeds everything random, as random_state= in Python; the default is a fixed seed, too."),
]


@dataclass(frozen=True)
class Classifier:
    """Which classifier is fitted, or which regressor of numbers, and how."""

    task: Annotated[
        str,
        Option(
            help="What the target is learnt as: classes, numbers, or auto: numbers with fractions, and whole ones of "
            "which most rows differ, are numbers."
        ),
    ] = "auto"
    kernel: Annotated[str, Option(help=KERNELS + ".")] = "auto"
    likelihood: Annotated[str, Option(help=LIKELIHOODS + ".")] = "auto"
    inference: Annotated[str, Option(help=INFERENCES + ".")] = "auto"
    objective: Annotated[str, Option(help=OBJECTIVES + ".")] = "auto"
    standardize: Annotated[
        str, Option(help="Standardise the columns: auto (not those of embeddings), true, false.")
    ] = "auto"
    ensemble: Annotated[
        bool,
        Option(
            help="Average several settings by leave-one-out predictions, or choose one; a named --kernel has one.",
        ),
    ] = True
    time: Annotated[
        str | None,
        Option(
            metavar="COLUMN",
            help="The column of numbers or dates that tells when rows came, or 'arrival' for their order: where "
            "classes and columns drift, rows are predicted by those that came before.",
        ),
    ] = None
    window: Annotated[
        float | None,
        Option(metavar="LENGTH", help="Forget rows older than this: so many rows of 'arrival', or days of dates."),
    ] = None
    checkpoint: Annotated[
        Path | None,
        Option(
            metavar="RUN",
            help="Adapt a learner that `sureshot meta-train` trained, in place of all the above: its folder or file.",
        ),
    ] = None
    strategy: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help=f"For classes that come over time, in place of all the above (docs/incremental.md): {STRATEGIES}.",
        ),
    ] = None
    seed: FitSeed = None


# search
SearchJobs = Annotated[
    int | None, Option("--jobs", help="Threads among which kernels are divided, -1 for all cores; changes no result.")
]
OptionalModelFile = Annotated[
    Path | None, Option("--output", "-o", metavar="MODEL", help="Save the model to this file (.safetensors).")
]


@dataclass(frozen=True)
class Search:
    """How kernels are searched."""

    particles: Annotated[int, Option("--particles", min=1, help="How many kernels at a time.")] = 32
    structure: Annotated[
        str | None,
        Option(metavar="TEXT", help="Keep this structure, such as 'LINEAR + PERIODIC', and learn its parameters."),
    ] = None
    grammar: Annotated[str, Option(help=GRAMMARS + ".")] = "default"
    window: Annotated[int | None, Option(min=1, help="Keep the latest rows only, so many.")] = None
    inducing: Annotated[
        int | None, Option(min=1, help="See kernels through so many inducing inputs: for more than 2,000 rows.")
    ] = None
    rejuvenation: Annotated[
        int | None,
        Option(min=0, help="Sweeps of moves after each batch; by default 6 while there are few rows, then 2."),
    ] = None
    schedule: Annotated[
        str, Option(metavar="NAME", help=f"How rows that come together are divided: {SCHEDULES}, or sizes: 50,100.")
    ] = "logarithmic"


@dataclass(frozen=True)
class Parts:
    """Which rows are learnt together, and which are asked about."""

    batches: Annotated[
        str | None,
        Option(metavar="COLUMN", help="Take DATA as a stream: rows come together that have the same value here."),
    ] = None
    batch_size: Annotated[
        int | None, Option(min=1, help="Take DATA as a stream of so many rows at a time, in their order.")
    ] = None
    test: Annotated[
        Path | None, Option("--test", metavar="FILE", help="Labelled rows for scores, in place of held-out ones.")
    ] = None
    hold_out: Annotated[
        float | None,
        Option(
            metavar="FRACTION",
            min=0,
            max=0.5,
            help="Of DATA's rows, class by class, kept for scores; 0: none. Without --test a fifth by default.",
            show_default=False,
        ),
    ] = None


# predict, suggest and update
Rows = Annotated[
    Path,
    Argument(
        metavar="DATA",
        help="CSV (- reads standard input), Excel, Parquet or NPZ file, or a folder of .parquet files; for a learner "
        "of images, a folder or an image.",
    ),
]


@dataclass(frozen=True)
class Answers:
    """What is written of each row beside its class."""

    proba: Annotated[bool, Option("--proba", help="Add the probability of every class.")] = False
    top: Annotated[
        int | None, Option(min=1, metavar="K", help="Add the K most probable classes, each with its probability.")
    ] = None
    outlier: Annotated[bool, Option("--outlier", help="Add the outlier score: larger is less like any class.")] = False
    reject: Annotated[
        float | None,
        Option(
            metavar="RATE",
            help="Add the p-value of 'one of the known classes', and reject rows where it is no larger than RATE: on "
            "average this share of the rows of known classes; 0.05, say.",
        ),
    ] = None
    unknown: Annotated[
        str | None, Option(metavar="NAME", help="What rejected rows are called, 'unknown' by default.")
    ] = None
    coverage: Annotated[
        float | None,
        Option(
            "--set",
            metavar="COVERAGE",
            help="Add a prediction set: it contains the true class of this share of the rows of known classes, on "
            "average; 0.9, say.",
        ),
    ] = None
    interval: Annotated[
        float | None,
        Option(
            "--coverage",
            metavar="COVERAGE",
            help="Of numbers: how many of the intervals contain the number, on average; 0.9 by default.",
        ),
    ] = None
    why: Annotated[
        int | None,
        Option(
            min=1,
            metavar="K",
            help="Add the K labelled rows that spoke most for the most probable class: id, label, and by how many nats "
            "its log probability falls if the row is left out; of numbers by how much the number falls.",
        ),
    ] = None


Join = Annotated[bool, Option("--join", help="Write the columns of the file beside the predictions.")]
IgnoredTarget = Annotated[
    str | None, Option("--target", "-t", metavar="COLUMN", help="A column of labels in the file, to be left out.")
]
ResumePredictions = Annotated[
    bool, Option("--resume", help="Go on behind the rows that the same command left in FILE.part when it was killed.")
]
PredictionsFile = Annotated[
    Path | None,
    Option("--output", "-o", metavar="FILE", help="Write here, a .csv (with --json .json); - is standard output."),
]
MoreLabelledData = Annotated[
    Path | None,
    Argument(metavar="[DATA]", help="Labelled rows to add, as for `sureshot fit`; none to forget some only."),
]
Pool = Annotated[
    Path,
    Argument(
        metavar="POOL",
        help="Rows to choose from: CSV (- reads standard input), Excel, Parquet or NPZ file, or a folder of .parquet "
        "files; for a learner of images, a folder.",
    ),
]
Number = Annotated[int, Option("--number", "-n", min=1, help="How many rows.")]
UpdatedModelFile = Annotated[Path | None, Option("--output", "-o", metavar="FILE", help="Write the new model here.")]
InPlace = Annotated[bool, Option("--in-place", help="Write the new model over MODEL.")]
ForgetRows = Annotated[
    list[str] | None,
    Option("--forget-rows", metavar="ID", help="Take away a row that came with --id, or several: a,b."),
]
ForgetClasses = Annotated[
    list[str] | None,
    Option("--forget-classes", metavar="CLASS", help="Take away a class with its rows, or several: a,b."),
]
Retune = Annotated[bool, Option("--retune", help="Choose all settings anew from all rows.")]
RetuneIfWorse = Annotated[
    bool,
    Option("--retune-if-worse", help="Choose all settings anew if the latest rows are predicted worse than promised."),
]

# meta-train
ConfigFile = Annotated[Path, Argument(metavar="CONFIG.toml", help="Settings; docs/meta-training.md has all.")]
RunFolder = Annotated[
    Path | None,
    Option("--output", "-o", metavar="FOLDER", help="The run's folder; by default runs/ and CONFIG's name."),
]
Settings = Annotated[
    list[str] | None, Option("--set", metavar="SECTION.KEY=VALUE", help="Replace a setting; may be repeated.")
]
Resume = Annotated[bool, Option("--resume/--no-resume", help="Go on from the folder's last checkpoint, or start anew.")]

# sessions
SessionsFile = Annotated[
    Path, Argument(metavar="CONFIG.toml", help="Data, methods and seeds; docs/sessions.md has all.")
]
SessionsReport = Annotated[
    Path | None, Option("--report", metavar="FOLDER", help="Where the HTML report goes; by default beside the results.")
]
SessionsFolder = Annotated[
    Path | None,
    Option("--output", "-o", metavar="FOLDER", help="Where results go; by default sessions/ and CONFIG's name."),
]

# meta-evaluate and meta-compare
Checkpoint = Annotated[
    Path, Argument(metavar="CHECKPOINT", help="What `sureshot meta-train` wrote: a file, or a run's folder.")
]
NamedCheckpoints = Annotated[
    list[str],
    Argument(metavar="[NAME=]CHECKPOINT...", help="Files or run folders, each with a name to show if need be."),
]
Reference = Annotated[
    str | None, Option("--reference", metavar="NAME", help="Differences are from this one; else the first.")
]


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of its groups of options, which are dataclasses, in the place of these arguments."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: one.annotation for name, one in signature.parameters.items() if is_dataclass(one.annotation)
    }
    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        whole = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
        parameters += _fields(groups[name]) if name in groups else whole

    @wraps(command)
    def spread_command(**given: Any) -> None:
        made = {name: kind(**{one.name: given.pop(one.name) for one in fields(kind)}) for name, kind in groups.items()}
        command(**made, **given)

    spread_command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return spread_command


def _fields(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(one.name, kind, default=one.default, annotation=hints[one.name]) for one in fields(group)]
