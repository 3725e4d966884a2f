"""Scikit-learn estimators whose samples stay in their silos: `SiloLogisticRegression` and `SiloRidge`."""

try:
    import sklearn as _  # noqa: F401
except ImportError as error:  # pragma: no cover
    raise ImportError("decibo.sklearn needs scikit-learn: pip install 'decibo[data]'") from error

from decibo.sklearn.estimators import SiloLogisticRegression, SiloRidge

__all__ = ["SiloLogisticRegression", "SiloRidge"]
