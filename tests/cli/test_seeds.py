"""compare and run with several seeds: what a seed changes, what is kept, and what is said about
seeds that failed."""

import signal
import tomllib

import pytest

from decibo.cli.errors import Exit
from decibo.report import read_run

COMPARED = """
problem = "quadratic"
network = { name = "erdos_renyi", agents = 4, p = 0.7 }
[run]
steps = 20
every = 10
measures = ["stationarity", "phi"]
start = { scale = 0.5 }
[compare]
methods = ["ahead_exact", "ahead[lam=20]"]
alpha = 0.05
gamma = 0.1
"""
MODULE = """
import os
import jax.numpy as jnp
import decibo

def outer(x, y, d):
    return jnp.sum((y - d) ** 2)

def inner(x, y, d):
    return jnp.sum((y - x) ** 2)

def make(agents: int, seed: int = 0) -> decibo.Problem:
    if str(seed) == os.environ.get("BROKEN_SEED"):
        raise ValueError("no data for this seed")
    return decibo.Problem(outer, inner, jnp.full((agents, 1), 1.0 + seed), jnp.zeros(1), jnp.zeros(1))
"""


@pytest.fixture
def compared(here):
    (here / "c.toml").write_text(COMPARED)
    return here / "out/c-compare-seeds"


def stored(folder):
    return tomllib.loads((folder / "config.toml").read_text())


def test_a_seed_changes_data_network_start_and_method(compared, decibo_call):
    done = decibo_call("compare", "c.toml", "--seeds", 3, "--json")
    assert done.code == Exit.RAN
    told = done.json
    assert (told["seeds"], told["fixed"]) == ([0, 1, 2], [])
    assert told["changed"] == ["problem.seed", "network.seed", "run.start.seed", "run.seed"]
    for label in ("ahead_exact", "ahead_lam=20"):
        for seed in range(3):
            config = stored(compared / label / f"seed-{seed}")
            assert [config[table]["seed"] for table in ("problem", "network", "run")] == [seed] * 3
            assert "seeds" not in config["run"]
    ends = [run["last"]["stationarity"] for run in told["runs"] if run["label"] == "ahead_exact"]
    assert len(set(ends)) == 3
    exact, _ = told["settings"]
    assert exact["ended"] == {"done": 3}
    assert exact["measures"]["stationarity"]["mean"] == pytest.approx(sum(ends) / 3)
    assert exact["measures"]["stationarity"]["median"] == pytest.approx(sorted(ends)[1])
    again = decibo_call(
        "run", compared / "ahead_exact/seed-2/config.toml", "--json", "--out", "out/again"
    ).json
    assert again["last"]["stationarity"] == ends[2]  # the folder repeats this run and no other


def test_a_seed_that_the_configuration_sets_stays(compared, decibo_call):
    options = ("--set", "problem.seed=7", "--set", "run.start.seed=1", "--seeds", "2,5")
    done = decibo_call("compare", "c.toml", *options)
    assert "2 seeds: 2 and 5. A seed sets network.seed and run.seed." in done.out
    assert "problem.seed and run.start.seed stay as the configuration says." in " ".join(
        done.out.split()
    )
    config = stored(compared / "ahead_exact" / "seed-5")
    assert (
        config["problem"]["seed"],
        config["run"]["start"]["seed"],
        config["network"]["seed"],
    ) == (7, 1, 5)


def test_what_is_complete_is_kept_and_what_is_not_is_made(compared, decibo_call):
    decibo_call("compare", "c.toml", "--seeds", 2)
    folders = [
        compared / label / f"seed-{seed}"
        for label in ("ahead_exact", "ahead_lam=20")
        for seed in (0, 1)
    ]
    before = {folder: (folder / "run.json").stat().st_mtime_ns for folder in folders}
    (folders[1] / "history.csv").write_text("step\n")  # damaged
    done = decibo_call("compare", "c.toml", "--seeds", 3, "--resume", "--json")
    assert (done.code, done.json["kept"], len(done.json["runs"])) == (Exit.RAN, 3, 6)
    changed = {
        folder for folder in folders if (folder / "run.json").stat().st_mtime_ns != before[folder]
    }
    assert changed == {folders[1]}
    other = decibo_call(
        "compare", "c.toml", "--seeds", 2, "--resume", "--json", "--set", "run.steps=30"
    )
    assert other.json["kept"] == 0


def test_a_failure_half_way_loses_nothing(here, decibo_call, monkeypatch):
    (here / "own_seeded.py").write_text(MODULE)
    config = (
        'problem = "own_seeded:make"\nnetwork = { name = "ring", agents = 4 }\n[run]\nsteps ='
        " 4\nseeds = 3\n"
    )
    (here / "own.toml").write_text(config)
    monkeypatch.setenv("BROKEN_SEED", "2")
    words = (
        "run",
        "own.toml",
        "--set",
        "method=ahead[alpha=0.1,gamma=0.1,lam=10]",
        "--trust",
        "own_seeded",
    )
    assert decibo_call(*words).code == Exit.OWN
    assert [read_run(here / f"out/own-seeds/seed-{seed}").status for seed in (0, 1)] == [
        "done",
        "done",
    ]
    monkeypatch.delenv("BROKEN_SEED")
    done = decibo_call(*words, "--resume", "--json")
    assert (done.code, done.json["kept"]) == (Exit.RAN, 2)
    assert [run["seed"] for run in done.json["runs"]] == [0, 1, 2]


def test_an_interrupted_comparison_says_how_to_go_on(compared, decibo_call, monkeypatch):
    runs = iter(range(100))

    def view():
        third = next(runs) == 2
        return lambda step, *_: (
            signal.raise_signal(signal.SIGTERM) if third and 0 < step < 2000 else None
        )

    monkeypatch.setattr("decibo.cli.solving.live_view", view)
    words = ("compare", "c.toml", "--seeds", 2, "--set", "run.steps=2000")
    done = decibo_call(*words)
    assert done.code == Exit.INTERRUPTED
    assert "with --resume" in " ".join(done.out.split())
    monkeypatch.setattr("decibo.cli.solving.live_view", lambda: False)
    assert read_run(compared / "ahead_exact/seed-1").status == "interrupted"
    rest = decibo_call(*words, "--resume", "--json")
    assert (rest.code, rest.json["kept"], len(rest.json["runs"])) == (Exit.RAN, 2, 4)


def test_a_diverged_seed_is_counted_and_explained(compared, decibo_call):
    done = decibo_call(
        "compare",
        "c.toml",
        "--seeds",
        2,
        "-m",
        "ahead[alpha=1e9,gamma=0.1,lam=2]",
        "-m",
        "ahead_exact",
    )
    assert done.code == Exit.DIVERGED
    assert "2 diverged" in done.out
    assert "seed 1: " in done.out
    reported = decibo_call("report", compared, "--latex", "--json")
    assert "2 diverged & --" in reported.json["latex"]


def test_run_with_seeds_and_checkpoints(here, decibo_call):
    done = decibo_call("run", "quad.toml", "--seeds", 2, "--checkpoint", "--json")
    assert (done.code, [run["seed"] for run in done.json["runs"]]) == (Exit.RAN, [0, 1])
    assert (here / "out/quad-seeds/seed-1/checkpoint").is_dir()
    refused = decibo_call("run", "quad.toml", "--seeds", 2, "--checkpoint")
    assert refused.code == Exit.WRONG
    assert "the command that began them and --resume" in decibo_call("resume", "out/quad-seeds").err
    kept = decibo_call("run", "quad.toml", "--seeds", 2, "--checkpoint", "--resume", "--json")
    assert kept.json["kept"] == 2


def test_seeds_that_change_nothing_are_said(here, decibo_call):
    done = decibo_call("run", "quad.toml", "--seeds", 2, "--set", "problem.seed=1")
    assert "nothing in these runs depends on the seed" in " ".join(done.out.split())


def test_single_runs_and_seeds_do_not_share_a_folder(here, decibo_call):
    assert decibo_call("run", "quad.toml").code == Exit.RAN
    single = decibo_call("run", "quad.toml", "--seeds", 2, "--out", "out/quad")
    assert single.code == Exit.WRONG
    assert "out/quad is the folder of a single run" in single.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "0"], "--seeds: seeds must be a positive integer"),
        (["--seeds", "1,1"], "--seeds: seeds must not repeat a seed"),
        (["--seeds", "few"], "--seeds must be an integer or a list"),
        (["--set", "run.seeds=[-1]"], "A seed must be an integer of at least 0"),
        (["--resume"], "--resume is for runs with several seeds"),
    ],
)
def test_wrong_seeds_are_rejected_before_any_run(here, decibo_call, words, message):
    done = decibo_call("run", "quad.toml", *words)
    assert done.code == Exit.WRONG
    assert message in done.err
    assert not (here / "out").exists()


def test_sweep_repeats_with_the_seeds_of_run_on_other_data(here, decibo_call):
    words = ("sweep", "quad.toml", "-g", "alpha=0.05,0.1", "--json")
    rows = decibo_call(*words, "--set", "run.seeds=[0,3]").json["rows"]
    assert [(row["alpha"], row["seed"]) for row in rows] == [
        (0.05, 0),
        (0.05, 3),
        (0.1, 0),
        (0.1, 3),
    ]
    alone = decibo_call(*words, "--set", "problem.seed=3").json["rows"]
    assert [row["stationarity"] for row in rows[1::2]] == [row["stationarity"] for row in alone]
