"""Scikit-learn estimators whose samples stay in their silos: `SiloLogisticRegression` and `SiloRidge`."""

from decibo.errors import missing

try:
    import sklearn as _  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise missing("scikit-learn", "decibo.sklearn", "data") from error

from decibo.sklearn.estimators import SiloLogisticRegression, SiloRidge

__all__ = ["SiloLogisticRegression", "SiloRidge"]
