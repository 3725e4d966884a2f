"""Callbacks of the page for MLflow, TensorBoard, Weights & Biases, Optuna and tqdm: what they write
is read back, where these are installed."""

import importlib
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import decibo

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "run.md"
BLOCKS = re.findall(r"^```python no-run\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
PROBLEM = decibo.problems.quadratic(agents=3)
# what others warn of is theirs
pytestmark = pytest.mark.filterwarnings("ignore")


def shown(first, *modules, **names):
    """What the block that begins so defines, with these modules imported as a reader would."""
    for module in modules:
        pytest.importorskip(module)
        importlib.import_module(module)
        top = module.partition(".")[0]
        names[top] = sys.modules[top]
    (block,) = [each for each in BLOCKS if each.startswith(first)]
    assert 8 <= len(block.splitlines()) <= 13  # short enough to paste
    exec(compile(block, str(PAGE), "exec"), names)
    return names[re.search(r"(?:class|def) (\w+)", block)[1]]


def solved(callback):
    method = decibo.ahead_exact(alpha=0.05, gamma=0.1)
    options = {"steps": 20, "every": 5, "measures": ["outer"], "callbacks": [callback]}
    return decibo.solve(PROBLEM, decibo.ring(3), method, **options)


def test_mlflow(tmp_path):
    callback = shown("class MLflow", "mlflow")
    mlflow = sys.modules["mlflow"]
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    try:
        end = solved(callback("first"))
    except mlflow.exceptions.MlflowException:  # without a database: files
        mlflow.set_tracking_uri(tmp_path.as_uri())
        end = solved(callback("first"))
    client = mlflow.MlflowClient()
    (run,) = client.search_runs(["0"])
    assert run.info.run_name == "first"
    assert run.info.status == "FINISHED"
    assert run.data.params["status"] == "done"
    read = client.get_metric_history(run.info.run_id, "outer")
    assert [metric.step for metric in read] == end.history["step"].tolist()
    np.testing.assert_allclose([metric.value for metric in read], end.history["outer"])


def test_tensorboard(tmp_path):
    callback = shown("class TensorBoard", "tensorboard", "torch.utils.tensorboard")
    end = solved(callback(tmp_path))
    events = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    read = events.EventAccumulator(str(tmp_path)).Reload().Scalars("outer")
    assert [event.step for event in read] == end.history["step"].tolist()
    np.testing.assert_allclose([event.value for event in read], end.history["outer"], rtol=1e-6)


def test_weights_and_biases(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    callback = shown("class WandB", "wandb")()
    solved(callback)
    assert list(tmp_path.rglob("run-*.wandb"))


def test_optuna():
    names = {"decibo": decibo, "problem": PROBLEM, "network": decibo.ring(3)}
    tried = shown("def tried", "optuna", **names)
    optuna = sys.modules["optuna"]
    pruner = optuna.pruners.ThresholdPruner(upper=-1e6)  # everything is too large
    study = optuna.create_study(pruner=pruner)
    study.optimize(tried, n_trials=1)
    assert study.trials[0].state == optuna.trial.TrialState.PRUNED
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(tried, n_trials=2)
    assert np.isfinite(study.best_value)


def test_tqdm(capsys):
    callback = shown("class Bar", "tqdm.auto")()
    solved(callback)
    assert callback.bar.n == 20
    assert "20/20" in capsys.readouterr().err
