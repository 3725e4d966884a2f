"""Four hospitals: a model of all, and one for each, moved as far as all learn that it pays.

In Switzerland nearly all that were examined are sick. A model of one hospital's records has few of
them, and a model of all forgets who is asked. personal=True moves the model of all for each
hospital; how far is learned between hospitals, and no record leaves its own. Sceptics: all records
in one place, and the same with a base rate for each hospital (its share of sick patients, pulled
towards that of all), which is most of the gain.

    python examples/personal_models.py [--quick]
"""

import sys
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import decibo
from decibo.sklearn import SiloLogisticRegression

SPLITS = range(1 if "--quick" in sys.argv else 5)


def main():
    warnings.simplefilter("ignore")  # of scikit-learn, about its own defaults
    losses = {}
    for split in SPLITS:
        data = decibo.data.heart_disease(split)
        X, new = data.features, data.test_features
        owner, new_owner = data.silos(), data.silos(True)
        sick, truth = data.labels > 0, data.test_labels > 0
        pooled = make_pipeline(
            StandardScaler(), LogisticRegressionCV(Cs=20, cv=4, scoring="neg_log_loss")
        ).fit(X, sick)
        ours = SiloLogisticRegression(personal=True, random_state=0).fit(X, sick, owner)
        moved = pooled.decision_function(new)
        for name in np.unique(owner):
            here = owner == name
            rate = (sick[here].sum() + 5 * sick.mean()) / (here.sum() + 5)
            said = pooled.predict_proba(X[here])[:, 1].mean()
            moved[new_owner == name] += np.log(rate / (1 - rate)) - np.log(said / (1 - said))
        chances = {
            "all records in one place": pooled.predict_proba(new)[:, 1],
            "the same, base rates in closed form": 1 / (1 + np.exp(-moved)),
            "one model of all, no record moves": ours.predict_proba(new)[:, 1],
            "personal models, no record moves": ours.predict_proba(new, new_owner)[:, 1],
        }
        for label, chance in chances.items():
            losses.setdefault(label, []).append(log_loss(truth, chance))
    print(f"log-loss on new patients, mean of {len(SPLITS)} splits")
    for label, values in losses.items():
        print(f"{label:38}{np.mean(values):.4f}")
    print("Look at: the last line, and how much of it base rates alone give.")


if __name__ == "__main__":
    main()
