"""Ready-made problems: some with known answers, some from the literature, some from practice."""

from decibo.problem.problem import single_level
from decibo.problems.cleaning import hyper_cleaning, hyper_cleaning_mask, hyper_cleaning_separation
from decibo.problems.logistic import accuracy, logistic_hyperparameters
from decibo.problems.minimax import minimax
from decibo.problems.pricing import stackelberg_pricing
from decibo.problems.quadratic import quadratic, quadratic_constants
from decibo.problems.synthetic import synthetic

__all__ = [
    "accuracy",
    "hyper_cleaning",
    "hyper_cleaning_mask",
    "hyper_cleaning_separation",
    "logistic_hyperparameters",
    "minimax",
    "quadratic",
    "quadratic_constants",
    "single_level",
    "stackelberg_pricing",
    "synthetic",
]
