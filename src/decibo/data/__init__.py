"""Data sets that are bundled, on disk or downloaded, and ways to split them among agents."""

from decibo.data.bundled import breast_cancer, digits
from decibo.data.dataset import Dataset
from decibo.data.files import find
from decibo.data.libsvm import libsvm
from decibo.data.mnist import mnist
from decibo.data.split import by_group, by_label, dirichlet, iid, shards

__all__ = [
    "Dataset",
    "breast_cancer",
    "by_group",
    "by_label",
    "digits",
    "dirichlet",
    "find",
    "iid",
    "libsvm",
    "mnist",
    "shards",
]
