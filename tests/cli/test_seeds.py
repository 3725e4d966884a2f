"""compare and run with several seeds: what a seed changes, what is kept, and what is said about
seeds that failed."""

import signal

import pytest

import decibo
from decibo.cli.errors import Exit
from decibo.report import read_run

NAMES = {
    "problem": None,
    "make_problem": "lambda seed: decibo.problems.quadratic(4, seed=seed)",
    "network": None,
    "make_network": "lambda seed: decibo.networks.erdos_renyi(4, 0.7, seed=seed)",
    "start": "lambda seed: decibo.random_start(seed, 0.5)",
    "steps": "20",
    "every": "10",
    "measures": '["stationarity", "phi"]',
    "methods": "[method, decibo.ahead(alpha=0.05, gamma=0.1, lam=20.0)]",
}
BROKEN = """
import os

def make_problem(seed):
    if str(seed) == os.environ.get("BROKEN_SEED"):
        raise ValueError("no data for this seed")
    return decibo.problems.quadratic(4, seed=seed)
"""


@pytest.fixture
def compared(here, write):
    write("c.py", **NAMES)
    return here / "out/c-compare-seeds"


def test_a_seed_changes_data_network_start_and_method(compared, write, decibo_call):
    done = decibo_call("compare", "c.py", "--seeds", 3, "--json")
    assert done.code == Exit.RAN, done.err
    found = done.json
    assert (found["seeds"], found["fixed"]) == ([0, 1, 2], [])
    assert found["changed"] == [
        "make_problem(seed)", "make_network(seed)", "start(seed)", "the seed of solve"
    ]  # fmt: skip
    for label in ("ahead_exact", "ahead"):
        for seed in range(3):
            assert read_run(compared / label / f"seed-{seed}").config["seed"] == seed
    ends = [run["last"]["stationarity"] for run in found["runs"] if run["label"] == "ahead_exact"]
    assert len(set(ends)) == 3
    exact, _ = found["settings"]
    assert exact["ended"] == {"done": 3}
    assert exact["measures"]["stationarity"]["mean"] == pytest.approx(sum(ends) / 3)
    assert exact["measures"]["stationarity"]["median"] == pytest.approx(sorted(ends)[1])
    write("again.py", **NAMES | {"seed": "2"})
    again = decibo_call("run", "again.py", "--json").json
    assert again["last"]["stationarity"] == ends[2]


def test_what_is_no_function_of_the_seed_stays(here, write, decibo_call):
    fixed = {"problem": "decibo.problems.quadratic(4, seed=7)", "make_problem": None}
    write("c.py", **NAMES | fixed)
    done = decibo_call("compare", "c.py", "--seeds", "2,5")
    text = " ".join(done.out.split())
    assert "2 seeds: 2 and 5. A seed sets make_network(seed), start(seed) and the seed" in text
    assert "problem is the same." in text


def test_what_is_complete_is_kept_and_what_is_not_is_made(here, compared, write, decibo_call):
    decibo_call("compare", "c.py", "--seeds", 2)
    folders = [
        compared / label / f"seed-{seed}" for label in ("ahead_exact", "ahead") for seed in (0, 1)
    ]
    before = {folder: (folder / "run.json").stat().st_mtime_ns for folder in folders}
    (folders[1] / "history.csv").write_text("step\n")  # damaged
    done = decibo_call("compare", "c.py", "--seeds", 3, "--resume", "--json")
    assert (done.code, done.json["kept"], len(done.json["runs"])) == (Exit.RAN, 3, 6)
    changed = {
        folder for folder in folders if (folder / "run.json").stat().st_mtime_ns != before[folder]
    }
    assert changed == {folders[1]}
    again = ("compare", "c.py", "--seeds", 2, "--resume", "--json")
    assert decibo_call(*again, "--steps", 30).json["kept"] == 0
    assert decibo_call(*again, "--steps", 30).json["kept"] == 4
    write("c.py", code="# other code, which may compute something else", **NAMES)
    assert decibo_call(*again, "--steps", 30).json["kept"] == 0


def test_a_failure_half_way_loses_nothing(here, write, decibo_call, monkeypatch):
    write("own.py", code=BROKEN, problem=None, steps="4", seeds="3")
    monkeypatch.setenv("BROKEN_SEED", "2")
    assert decibo_call("run", "own.py").code == Exit.OWN
    assert [read_run(here / f"out/own-seeds/seed-{seed}").status for seed in (0, 1)] == [
        "done",
        "done",
    ]
    monkeypatch.delenv("BROKEN_SEED")
    done = decibo_call("run", "own.py", "--resume", "--json")
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
    words = ("compare", "c.py", "--seeds", 2, "--steps", 2000)
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
        "c.py",
        "--seeds",
        2,
        "-m",
        "ahead[alpha=1e9,gamma=0.1,lam=2]",
        "-m",
        "ahead_exact",
    )
    assert done.code == Exit.DIVERGED
    assert "2 diverged" in done.out
    # two failures of one kind are one paragraph
    text = " ".join(done.out.split())
    assert "2 runs diverged: ahead[alpha=1e9,gamma=0.1,lam=2] (2). For example ahead" in text
    assert "seed 1:" not in text
    assert "is behind the methods that did" in text
    reported = decibo_call("report", compared, "--latex", "-", "--json")
    assert "2 diverged & --" in reported.json["latex"]


def test_a_second_comparison_says_what_it_replaces(compared, decibo_call):
    words = ("compare", "c.py", "--seeds", 2, "--steps", 4)
    assert decibo_call(*words).err == ""
    noted = decibo_call(*words).err
    assert "replaces 4 runs of an earlier command: ahead/seed-0" in noted or "ahead_exact/" in noted
    assert "replaces" not in decibo_call(*words, "--resume").err


def test_all_methods_are_tuned_with_the_same_number_of_tries(here, write, decibo_call, monkeypatch):
    tried = []
    real = decibo.sweep
    monkeypatch.setattr(
        decibo,
        "sweep",
        lambda problem, network, method, rows, **named: (
            tried.append((method.name, len(rows), named["seeds"]))
            or real(problem, network, method, rows, **named)
        ),
    )
    methods = "[decibo.ahead_exact(alpha=2e-3, gamma=0.02), decibo.ahead_exact(),"
    methods += " decibo.ahead(alpha=30.0, gamma=0.1, lam=20.0)]"
    write("c.py", **NAMES | {"start": None, "methods": methods})
    done = decibo_call("compare", "c.py", "--seeds", 2, "--tune", 9, "--steps", 60, "--json")
    assert done.code == Exit.RAN, done.err
    tries = {}
    for name, count, (seed,) in tried:
        assert seed in (2, 3)  # those of the comparison are 0 and 1
        tries[name, seed] = tries.get((name, seed), 0) + count
    assert tries == dict.fromkeys(
        [(name, seed) for name in ("ahead_exact", "ahead") for seed in (2, 3)], 9
    )
    timid, automatic, bold = done.json["tuned"].values()
    assert automatic["settings"] == {}
    assert "finds its own" in automatic["remark"]
    assert timid["settings"]["alpha"] > 4e-3
    assert bold["settings"]["alpha"] < 30  # where it diverges
    # what was found is what ran, and it is better than what was given
    first = next(run for run in done.json["runs"] if run["seed"] == 0)
    assert f"alpha={timid['settings']['alpha']:.6g}" in first["method"]
    given = decibo_call("compare", "c.py", "--seeds", 2, "--steps", 60, "--json").json["runs"][0]
    assert first["last"]["stationarity"] < 0.1 * given["last"]["stationarity"]
    assert decibo_call("compare", "c.py", "--tune", 2).code == Exit.WRONG


def test_run_with_seeds_and_checkpoints(here, decibo_call):
    done = decibo_call("run", "quad.py", "--seeds", 2, "--checkpoint", "--json")
    assert (done.code, [run["seed"] for run in done.json["runs"]]) == (Exit.RAN, [0, 1])
    assert (here / "out/quad-seeds/seed-1/checkpoint").is_dir()
    refused = decibo_call("run", "quad.py", "--seeds", 2, "--checkpoint")
    assert refused.code == Exit.WRONG
    assert "the command that began them and --resume" in decibo_call("resume", "out/quad-seeds").err
    kept = decibo_call("run", "quad.py", "--seeds", 2, "--checkpoint", "--resume", "--json")
    assert kept.json["kept"] == 2


def test_seeds_that_change_nothing_are_noted(here, decibo_call):
    done = decibo_call("run", "quad.py", "--seeds", 2)
    said = " ".join(done.out.split())
    assert "nothing depends on the seed. make_problem(seed) in place of problem" in said


def test_single_runs_and_seeds_do_not_share_a_folder(here, decibo_call):
    assert decibo_call("run", "quad.py").code == Exit.RAN
    single = decibo_call("run", "quad.py", "--seeds", 2, "--out", "out/quad")
    assert single.code == Exit.WRONG
    assert "out/quad is the folder of a single run" in single.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "0"], "seeds must be a positive integer"),
        (["--seeds", "1,1"], "seeds must not repeat a seed"),
        (["--seeds", "few"], "--seeds must be an integer or a list"),
        (["--seeds", "0,-1"], "A seed must be an integer of at least 0"),
        (["--resume"], "--resume is for runs with several seeds"),
    ],
)
def test_wrong_seeds_are_rejected_before_any_run(here, decibo_call, words, message):
    done = decibo_call("run", "quad.py", *words)
    assert done.code == Exit.WRONG
    assert message in done.err
    assert not (here / "out").exists()


def test_sweep_repeats_with_seeds_on_other_data(here, write, decibo_call):
    write("c.py", **NAMES | {"start": None})
    words = ("sweep", "c.py", "-g", "alpha=0.05,0.1", "--json")
    rows = decibo_call(*words, "--seeds", "0,3").json["rows"]
    assert [(row["alpha"], row["seed"]) for row in rows] == [
        (0.05, 0),
        (0.05, 3),
        (0.1, 0),
        (0.1, 3),
    ]
    write("c.py", **NAMES | {"start": None, "seed": "3"})
    alone = decibo_call(*words).json["rows"]
    assert [row["stationarity"] for row in rows[1::2]] == [row["stationarity"] for row in alone]
