"""Tables with missing values and categories as features, fitted over silos by sums:
`SiloEncoder`."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from decibo.data.encode import Encoding


class SiloEncoder(TransformerMixin, BaseEstimator):
    """Data frames with missing values and columns of text as numbers, the same in all silos.

    Numbers are standardised, and missing ones become the mean: means and deviations come from the
    sums of all silos. Text becomes an indicator for each category that occurs in any silo; missing
    and unknown ones have none. In a run of several processes each passes its own rows, and learns
    only sums and categories of the others.

    Fitted: encoding_ (a `decibo.data.Encoding`), n_features_in_, feature_names_in_ if X has names.
    """

    encoding_: Encoding

    def fit(self, X: object, y: ArrayLike | None = None) -> SiloEncoder:
        """Learn means, deviations and categories; y is ignored."""
        self.encoding_ = Encoding.fit(X)
        self.n_features_in_ = len(self.encoding_.columns)
        if hasattr(X, "columns") or isinstance(X, dict):
            self.feature_names_in_ = np.array(self.encoding_.columns, dtype=object)
        return self

    def transform(self, X: object) -> np.ndarray:
        """The features, (rows, features)."""
        check_is_fitted(self)
        return self.encoding_(X)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> np.ndarray:
        """The names of the features."""
        check_is_fitted(self)
        return np.array(self.encoding_.features, dtype=object)
