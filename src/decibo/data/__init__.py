"""Data: what is bundled, on disk or to be downloaded, and how it is divided among agents."""

from decibo.data.batches import Batches
from decibo.data.dataset import Dataset
from decibo.data.encode import Encoding
from decibo.data.heart_disease import heart_disease
from decibo.data.idx import idx
from decibo.data.loaders import breast_cancer, digits, find, libsvm, mnist
from decibo.data.samples import samples
from decibo.data.split import by_group, by_label, dirichlet, iid, shards
from decibo.data.stream import Stream
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
