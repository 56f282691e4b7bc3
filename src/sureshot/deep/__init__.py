"""Networks that classify many classes, trained on all of them at once.

A `DeepClassifier` is a backbone and what makes probabilities of its embeddings: a linear layer and softmax
(`SoftmaxNetwork`, which also is how the others begin), a tree of classes with a binary Gaussian process at every node
(`TreeNetwork`), and what that is compared with: one Gaussian process for each class with the robust-max likelihood
(`RobustMaxNetwork`, "GPDNN") and Gaussian processes of single features on a grid (`GridNetwork`, "SV-DKL").
`ClassifierTraining` makes a trainee of any, for the loop of `sureshot.networks`.

Three take further classes later (`GrowingClassifier`): softmax, several cosine proxies for each class (`ProxyNetwork`,
of PODNet) and class means of an embedding that triplets have trained (`TripletNetwork`, of SDC).

Reference: Achituve, Navon, Yemini, Chechik & Fetaya 2021, "GP-Tree: A Gaussian process classifier for few-shot
incremental learning", section 5.2 and appendix C.2.
"""

from sureshot.deep.augmentation import random_crops, random_flips
from sureshot.deep.base import DeepClassifier
from sureshot.deep.checkpoint import load_deep_classifier
from sureshot.deep.class_tree import TreeNetwork
from sureshot.deep.cosine_proxies import ProxyNetwork
from sureshot.deep.grid_interpolation import GridNetwork
from sureshot.deep.growing import GrowingClassifier
from sureshot.deep.robust_max import RobustMaxNetwork
from sureshot.deep.softmax import SoftmaxNetwork
from sureshot.deep.training import ClassifierSettings, ClassifierTraining, held_out_rows
from sureshot.deep.triplet import TripletNetwork

__all__ = [
    "ClassifierSettings",
    "ClassifierTraining",
    "DeepClassifier",
    "GridNetwork",
    "GrowingClassifier",
    "ProxyNetwork",
    "RobustMaxNetwork",
    "SoftmaxNetwork",
    "TreeNetwork",
    "TripletNetwork",
    "held_out_rows",
    "load_deep_classifier",
    "random_crops",
    "random_flips",
]
