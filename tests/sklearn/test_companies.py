"""Companies with a table each, on disks of their own, in a process each, by the script of the page
on owners: killed, resumed, saved and loaded."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline

from decibo.data import read_table
from decibo.errors import InputError
from decibo.sklearn import SiloEncoder, SiloLogisticRegression, load, save

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "owners.md").read_text()
SCRIPT = next(block for block in PAGE.split("```") if "decibo.init_distributed()" in block)
SIZES = (60, 25)


def tables(place):
    """Customers with gaps and a column of words; the second company has no silver ones."""
    random = np.random.default_rng(0)
    for company, size in enumerate(SIZES):
        lines = ["age,plan,spent,churned"]
        for _ in range(size):
            age, spent = random.normal(45 + 5 * company, 12), random.exponential(30)
            plan = random.choice(["gold", "silver", "none"] if company == 0 else ["gold", "none"])
            churned = random.random() < 1 / (
                1 + np.exp(-(0.08 * (age - 45) - 0.03 * spent + (plan == "none")))
            )
            cells = [f"{age:.0f}", plan, f"{spent:.2f}", "yes" if churned else "no"]
            lines.append(
                ",".join(c if k == 3 or random.random() > 0.1 else "" for k, c in enumerate(cells))
            )
        (place / f"company{company}").mkdir(parents=True)
        (place / f"company{company}" / "customers.csv").write_text("\n".join(lines))
    (place / "company.py").write_text(SCRIPT.partition("\n")[2])
    return place


def launch(place, *options):
    command = [
        sys.executable,
        "-m",
        "decibo",
        "launch",
        "-n",
        str(len(SIZES)),
        *options,
        "--",
        "python",
        "company.py",
    ]
    return subprocess.Popen(
        command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def steps_of(place, company):
    return sorted(
        path.name for path in (place / f"company{company}" / "checkpoints").glob("step-*")
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_companies_learn_what_one_table_would_give_and_resume_after_a_kill(tmp_path):
    place = tables(tmp_path)
    job = launch(place)
    deadline = time.monotonic() + 120
    while not steps_of(place, 1) and job.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    if job.poll() is None:  # the first line of filelock's file is the number of its process
        lock = (place / "company1" / "checkpoints" / ".lock").read_text()
        os.kill(int(lock.split()[0]), signal.SIGKILL)
    out, err = job.communicate(timeout=60)
    assert steps_of(place, 0), err
    kept = {path.name for path in (place / "company0" / "checkpoints").glob("step-*/agents-*")}
    assert kept == {"agents-0-0.npz"}  # its own

    done = launch(place)
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0, err
    assert all(f"company {k}: {size} customers" in out for k, size in enumerate(SIZES))
    texts = [(place / f"company{k}" / "model.json").read_text() for k in range(2)]
    assert texts[0] == texts[1]

    whole = read_table(
        {str(k): place / f"company{k}" / "customers.csv" for k in range(2)}, label="churned"
    )
    encoder, model = SiloEncoder(), SiloLogisticRegression(random_state=0)
    model.fit(encoder.fit_transform(whole.X), whole.y, groups=whole.groups)
    loaded = load(place / "company0" / "model.json")
    np.testing.assert_allclose(loaded[-1].coef_, model.coef_, atol=2e-3)
    np.testing.assert_allclose(
        loaded.predict_proba(whole.X), model.predict_proba(encoder.transform(whole.X)), atol=2e-3
    )


def test_models_are_saved_as_json_and_refused_if_damaged(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.tile(["no", "yes"], 20)
    with pytest.warns(ConvergenceWarning):
        model = make_pipeline(SiloEncoder(), SiloLogisticRegression(steps=20, random_state=0)).fit(
            X, y
        )
    path = save(model, tmp_path / "model.json")
    assert (load(path).predict(X) == model.predict(X)).all()
    np.testing.assert_array_equal(load(path).predict_proba(X), model.predict_proba(X))
    alone = save(model[-1], tmp_path / "alone.json")
    assert load(alone).n_features_in_ == 2
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(OSError, match="is not a model"):
        load(tmp_path / "other.json")
    with pytest.raises(InputError, match="did not write it"):
        save(model, tmp_path / "other.json")
    with pytest.raises(InputError, match="Only SiloEncoder"):
        save(make_pipeline(np), tmp_path / "third.json")
