"""decibo predict: a saved model and a table."""

import numpy as np
import pandas

from decibo.sklearn import SiloLogisticRegression, save


def test_a_saved_model_predicts_for_a_table(tmp_path, decibo_call):
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 4))
    y = np.where(X[:, 0] + random.normal(size=200) > 0, "ill", "well")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    model = SiloLogisticRegression(random_state=0, tol=0.01).fit(frame, y, np.arange(200) % 4)
    save(model, tmp_path / "model.json")
    frame.assign(state=y, e="word").to_csv(tmp_path / "new.csv", index=False)
    done = decibo_call(
        "predict", tmp_path / "model.json", tmp_path / "new.csv", "-o", tmp_path / "out.csv"
    )
    assert "200 predictions" in done.out
    found = pandas.read_csv(tmp_path / "out.csv")
    assert (found["prediction"] == model.predict(frame)).all()
    np.testing.assert_allclose(found["chance of ill"], model.predict_proba(frame)[:, 0], atol=1e-6)
