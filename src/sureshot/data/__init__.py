"""Reading data: the data root, tables, embeddings and images from files, and few-shot data by name."""

from typing import TYPE_CHECKING

from sureshot.lazy import imported_when_asked_for

if TYPE_CHECKING:
    from sureshot.data.clinc150 import Clinc150, load_clinc150
    from sureshot.data.embeddings import read_npz
    from sureshot.data.few_shot import FEW_SHOT_NAMES, load_few_shot, register_dataset
    from sureshot.data.labelled import FewShotData, LabelledSet
    from sureshot.data.root import ENVIRONMENT_VARIABLE, DataError, data_file, data_root
    from sureshot.data.tables import DataTable, column_names, load_table, read_table

__all__ = [
    "ENVIRONMENT_VARIABLE",
    "FEW_SHOT_NAMES",
    "Clinc150",
    "DataError",
    "DataTable",
    "FewShotData",
    "LabelledSet",
    "column_names",
    "data_file",
    "data_root",
    "load_clinc150",
    "load_few_shot",
    "load_table",
    "read_npz",
    "read_table",
    "register_dataset",
]

__getattr__ = imported_when_asked_for(__name__)
