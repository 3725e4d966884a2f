"""Scikit-learn estimators whose samples stay in their silos, and the encoding of tables that goes
with them."""

from decibo.errors import missing

try:
    import sklearn as _  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise missing("scikit-learn", "decibo.sklearn", "data") from error

from decibo.sklearn.encoder import SiloEncoder
from decibo.sklearn.estimators import (
    SiloCox,
    SiloEstimator,
    SiloGLM,
    SiloLogisticRegression,
    SiloRidge,
)
from decibo.sklearn.stored import load, save
from decibo.sklearn.trust import SiloTrust

__all__ = [
    "SiloCox",
    "SiloEncoder",
    "SiloEstimator",
    "SiloGLM",
    "SiloLogisticRegression",
    "SiloRidge",
    "SiloTrust",
    "load",
    "save",
]
