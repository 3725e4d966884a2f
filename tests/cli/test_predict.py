"""decibo predict: a saved model and a table."""

import numpy as np
import pandas
import pytest

import decibo
from decibo.sklearn import SiloLogisticRegression, SiloRidge, save


def test_a_saved_model_predicts_for_a_table(tmp_path, decibo_call):
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 4))
    y = np.where(X[:, 0] + random.normal(size=200) > 0, "ill", "well")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    model = SiloLogisticRegression(random_state=0, tol=0.01).fit(frame, y, np.arange(200) % 4)
    save(model, tmp_path / "model.json")
    frame.assign(state=y, e="word").to_csv(tmp_path / "new.csv", index=False)
    words = tmp_path / "new.csv", "-o", tmp_path / "out.csv", "--missing", "unknown"
    done = decibo_call("predict", tmp_path / "model.json", *words)
    assert "200 predictions" in done.out
    found = pandas.read_csv(tmp_path / "out.csv")
    assert (found["prediction"] == model.predict(frame)).all()
    np.testing.assert_allclose(found["chance of ill"], model.predict_proba(frame)[:, 0], atol=1e-6)


def test_text_in_a_table_is_named_with_what_encodes_it():
    frame = pandas.DataFrame({"age": [1.0, 2, 3, 4], "plan": list("abab")})
    for attempt in (SiloLogisticRegression().fit, SiloRidge().fit):
        with pytest.raises(decibo.InputError, match=r"columns hold text: plan\..*SiloEncoder\(\)"):
            attempt(frame, [0, 1, 0, 1])
