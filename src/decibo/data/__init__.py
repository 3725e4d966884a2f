"""Data: what is bundled, on disk or to be downloaded, and how it is divided among agents."""

from decibo.data.dataset import Dataset
from decibo.data.encode import Encoding
from decibo.data.heart_disease import heart_disease
from decibo.data.loaders import breast_cancer, digits, find, idx, libsvm, mnist
from decibo.data.split import by_group, by_label, dirichlet, iid, shards
from decibo.data.stream import Batches, Stream, samples
from decibo.data.tables import Table, read_table

__all__ = [
    "Batches",
    "Dataset",
    "Encoding",
    "Stream",
    "Table",
    "breast_cancer",
    "by_group",
    "by_label",
    "digits",
    "dirichlet",
    "find",
    "heart_disease",
    "idx",
    "iid",
    "libsvm",
    "mnist",
    "read_table",
    "samples",
    "shards",
]
