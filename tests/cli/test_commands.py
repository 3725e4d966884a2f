"""Every command does what it says, in words and as JSON, within 80 columns and without colours."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.cli import app as cli
from decibo.cli import demo
from decibo.cli.doctor import findings
from decibo.cli.errors import MEANING, Exit
from decibo.run.lock import hold

OWN = '''
import jax.numpy as jnp
import decibo

def make_problem(agents: int, pull: float = 1.0) -> decibo.Problem:
    """Each agent has its own target."""
    outer = lambda x, y, d: jnp.sum((y - d) ** 2)
    inner = lambda x, y, d: jnp.sum((y - pull * x) ** 2)
    targets = jnp.arange(2.0 * agents).reshape(agents, 2)
    return decibo.Problem(outer, inner, targets, x0=jnp.zeros(2), y0=jnp.zeros(2), name="own")

def worst(s):
    return jnp.max(jnp.abs(s.x))

def not_a_problem() -> decibo.Problem:
    return 3

def faulty(agents: int) -> decibo.Problem:
    return make_problem(agents // 0)

def faulty_outer(agents: int) -> decibo.Problem:
    def outer(x, y, d):
        return jnp.sum(d.missing)
    problem = make_problem(agents)
    return decibo.Problem(outer, problem.inner, problem.data, x0=jnp.zeros(2), y0=jnp.zeros(2))
'''


@pytest.fixture
def call(decibo_call):
    return decibo_call


def tidy(text):
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= 80
    return text


@pytest.mark.quick
def test_run_writes_a_folder_that_describes_itself(here, call):
    done = call("run", "quad.toml", "--set", "problem.seed=3")
    assert (done.code, done.err) == (Exit.RAN, "")
    assert "stationarity" in tidy(done.out)
    assert "Written to out/quad" in done.out
    assert "Next: decibo report out/quad" in done.out
    kept = tomllib.loads((here / "out/quad/config.toml").read_text())
    assert kept["problem"] == {
        "name": "quadratic", "agents": 4, "n": 3, "r": 4, "seed": 3, "heterogeneity": 1.0, "condition": 4.0, "bend": 0.0
    }  # fmt: skip
    assert kept["network"] == {"name": "ring", "agents": 4, "weights": "metropolis"}
    told = json.loads((here / "out/quad/run.json").read_text())
    assert (told["status"], told["seed"], told["network"]["agents"]) == ("done", 0, 4)


def test_the_kept_configuration_gives_the_same_run_again(here, call):
    first = call("run", "quad.toml", "--json")
    again = call("run", "out/quad/config.toml", "--json", "--out", "again")
    assert first.json["last"] == again.json["last"]
    assert (here / "again/config.toml").read_text() == (here / "out/quad/config.toml").read_text()


def test_json_is_the_run_that_python_makes(here, call):
    said = call("run", "quad.toml", "--json").json
    solution = decibo.solve(
        decibo.problems.quadratic(4),
        decibo.ring(4),
        decibo.ahead_exact(alpha=0.05, gamma=0.1),
        steps=40,
        measures=["stationarity", "consensus_x"],
    )
    for name in ("stationarity", "consensus_x"):
        np.testing.assert_allclose(said["last"][name], solution.history[name][-1], rtol=1e-6)
    assert said["cost"]["bytes_total"] == solution.cost.bytes_total


def test_single_precision_is_single(here, call):
    call("run", "quad.toml", "--set", "run.dtype=float32")
    assert np.load(here / "out/quad/solution.npz")["x"].dtype == np.float32
    assert jnp.zeros(1).dtype == np.float64  # and it was put back


def test_a_run_that_diverges_ends_with_one(here, call):
    done = call("run", "quad.toml", "--set", "method.alpha=1e4", "--set", "run.steps=400")
    assert done.code == Exit.DIVERGED
    assert "Lower alpha" in tidy(done.out)
    assert "Next: decibo check quad.toml" in done.out


def _method(text):
    """ahead[lam=20] in Python."""
    name, settings = text.rstrip("]").split("[")
    return decibo.CATALOG[name](
        **{key: float(value) for key, value in (pair.split("=") for pair in settings.split(","))}
    )


@pytest.mark.parametrize(
    "method",
    [
        "ahead_exact[alpha=1e-9,gamma=0.5]",
        "ahead[alpha=1e-9,gamma=0.5,lam=1e4]",
        "sparkle_ed[alpha=1e-9,beta=0.3,gamma=0.3]",
    ],
)
def test_the_direction_norm_estimates_stationarity(here, call, method):
    """With x at rest and the inner variables settled, it is |grad Phi|^2 itself."""
    words = ["run", "quad.toml", "--json", "--set", f"method={method}", "--set", "run.every=400"]
    words += ["--set", "run.steps=400", "--set", "problem.heterogeneity=0"]
    exact = call(*words, "--set", "run.measures=stationarity").json["last"]
    cheap = call(*words, "--set", "run.measures=cheap").json["last"]
    assert set(exact) == {"stationarity"}
    in_python = decibo.solve(decibo.problems.quadratic(), decibo.ring(10), _method(method), steps=1)
    assert set(cheap) == set(in_python.history) - {"step"}  # both ways record the same
    assert {"direction_norm", "outer"} < set(cheap)
    np.testing.assert_allclose(cheap["direction_norm"], exact["stationarity"], rtol=1e-2)


def test_own_problem_and_measure_by_name(here, call, monkeypatch):
    (here / "own_one.py").write_text(OWN)
    (here / "own.toml").write_text(
        'problem = { name = "own_one:make_problem", pull = 2.0 }\n[network]\nname = "star"\nagents'
        " = 3\n[method]\nalpha = 0.01\ngamma = 0.3\n[run]\nsteps = 500\nmeasures ="
        ' ["own_one:worst"]\n'
    )
    done = call("run", "own.toml", "--trust", "own_one", "--json")
    assert done.code == 0, done.err
    # mean target (2, 3) over pull 2
    assert done.json["last"]["worst"] == pytest.approx(1.5, rel=1e-3)
    assert 'name = "own_one:make_problem"' in (here / "out/own/config.toml").read_text()
    wrong = call("run", "own.toml", "--trust", "own_one", "--set", "problem.pul=1.0")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    assert "Did you mean 'pull'?" in wrong.err
    for name, said in {
        "own_one:make_problm": "Did you mean 'make_problem'?",
        "own_one:not_a_problem": "must return a decibo.Problem",
        "own_nowhere:f": "own_nowhere",
        "own one:f": "module:function",
    }.items():
        wrong = call("run", "own.toml", "--trust", "own_one", "--set", f'problem="{name}"')
        assert (wrong.code, wrong.err.count("\n")) == (2, 1)
        assert said in wrong.err


@pytest.mark.parametrize(
    ("function", "place", "line"),
    [
        (
            "faulty",
            "faulty in own_two.py raised ZeroDivisionError",
            "return make_problem(agents // 0)",
        ),
        (
            "faulty_outer",
            "outer(x0, y0, data of one agent) raised AttributeError",
            "return jnp.sum(d.missing)",
        ),
    ],
)
def test_a_bug_in_a_function_of_the_user_keeps_its_traceback(
    here, call, monkeypatch, function, place, line
):
    (here / "own_two.py").write_text(OWN)
    monkeypatch.delitem(sys.modules, "own_two", raising=False)
    done = call("run", "quad.toml", "--trust", "own_two", "--set", f'problem="own_two:{function}"')
    first, *rest = done.err.splitlines()
    assert done.code == Exit.OWN
    assert place in first
    assert "Traceback (most recent call last):" in rest
    assert line in done.err
    assert "registry.py" not in done.err  # it starts in the user's own function
    assert not (here / "out").exists()


def test_a_module_of_the_user_that_cannot_be_imported_keeps_its_traceback(here, call, monkeypatch):
    for name, text in {
        "own_three": "import nowhere_at_all\n",
        "own_four": "def broken(:\n",
    }.items():
        (here / f"{name}.py").write_text(text)
        done = call(
            "run", "quad.toml", "--set", f'problem="{name}:make"', "--json", "--trust", name
        )
        assert done.code == done.json["exit"] == Exit.OWN
        assert f"{name}.py raised" in done.err.splitlines()[0]
        assert text.strip() in done.err


def test_compare_shares_settings_and_keeps_every_run(here, call):
    words = [
        "-m",
        "ahead_exact",
        "-m",
        "ahead[alpha=0.02,beta=0.005,gamma=0.1,lam=20]",
        "-m",
        "sparkle_ed",
    ]
    sets = [
        "--set",
        "compare.alpha=0.05",
        "--set",
        "compare.beta=0.1",
        "--set",
        "compare.gamma=0.1",
    ]
    done = call("compare", "quad.toml", *words, *sets)
    assert done.code == 0, done.err
    assert "sparkle_ed" in tidy(done.out)
    settings = {
        path.parent.name: json.loads(path.read_text())["method"]
        for path in here.glob("out/*/*/run.json")
    }
    assert set(settings) == {
        "ahead_exact",
        "ahead_alpha=0.02_beta=0.005_gamma=0.1_lam=20",
        "sparkle_ed",
    }
    assert settings["ahead_exact"]["settings"]["alpha"] == 0.05  # from [method]
    own = settings["ahead_alpha=0.02_beta=0.005_gamma=0.1_lam=20"]["settings"]
    assert own["alpha"] == 0.02  # its own before the shared one
    assert settings["sparkle_ed"]["settings"]["beta"] == 0.1
    page = call("report", "out/quad-compare")
    assert page.code == 0, page.err
    assert (here / "out/quad-compare/report.html").is_file()


def test_compare_says_which_run_came_to_nothing(here, call):
    words = ["-m", "ahead_exact", "-m", "ahead[alpha=0.05,beta=0.1,gamma=0.1,lam=20]"]
    done = call("compare", "quad.toml", *words)
    assert done.code == Exit.DIVERGED
    told = " ".join(done.out.split())
    assert "gamma=0.1,lam=20]: No answer after 40 steps. The largest number has grown" in told
    statuses = {
        path.parent.name[:11]: json.loads(path.read_text())["status"]
        for path in here.glob("out/*/*/run.json")
    }
    assert statuses == {"ahead_exact": "done", "ahead_alpha": "diverged"}
    latex = call("report", "out/quad-compare", "--latex").out
    assert "& diverged &" in latex


def test_compare_takes_its_methods_from_the_file(here, call):
    text = (
        here / "quad.toml"
    ).read_text() + '[compare]\nmethods = ["ahead_exact", "ahead_exact[lam=10]"]\n'
    (here / "two.toml").write_text(text)
    runs = call("compare", "two.toml", "--json").json["runs"]
    assert [run["label"] for run in runs] == ["ahead_exact", "ahead_exact[lam=10]"]
    assert "lam=10" in runs[1]["method"]


def test_sweep_finds_the_best(here, call):
    done = call("sweep", "quad.toml", "-g", "alpha=0.001,0.05,1e4", "--set", "run.steps=300")
    assert done.code == 0, done.err
    assert "Next: decibo run quad.toml --set run.steps=300 --set method.alpha=0.05" in tidy(
        done.out
    )
    assert (here / "out/quad-sweep/sweep.csv").read_text().count("\n") == 4
    said = call("sweep", "quad.toml", "-g", "alpha=1e4,1e5", "--set", "run.steps=300", "--json")
    assert said.code == Exit.DIVERGED
    assert [row["status"] for row in said.json["rows"]] == ["diverged", "diverged"]


def remembering(function):
    """The function, which computes everything once: words and JSON are about the same runs."""
    known = {}

    def call(data, network, chosen):
        key = data.features.tobytes(), data.labels.tobytes(), str(chosen)
        if key not in known:
            known[key] = function(data, network, chosen)
        return known[key]

    return call


@pytest.mark.slow
def test_the_demo_compares_and_ends_with_a_page(here, call, monkeypatch):
    monkeypatch.setattr(demo, "SPLITS", (43, 1))
    for function in (demo.learn, demo.trust):
        monkeypatch.setattr(demo, function.__name__, remembering(function))
    done = call("demo", "--out", "shown")
    assert done.code == 0, done.err
    assert max(map(len, done.out.splitlines())) <= 80
    assert "Open shown/report.html in a browser" in tidy(done.out)
    assert "Published by FLamby" in done.out
    said = call("demo", "--out", "shown", "--json").json
    page = (here / said["page"]).read_text()
    assert page.lower().startswith("<!doctype html>")
    assert all(label in done.out and label in page for label in said["runs"])
    scores = said["accuracy"]
    together = scores["together, with decibo"][0]
    # one standard error
    assert together >= scores["all records in one place, if allowed"][0] - 0.025
    assert all(together > score[0] for label, score in scores.items() if label.endswith("alone"))
    assert all(
        row[name] == min(row[other] for other in said["swapped"])
        for name, row in said["swapped"].items()
    )
    assert all(row["learned trust"] >= row["equal trust"] for row in said["swapped"].values())
    curve = decibo.report.read_run(here / said["runs"]["together, with decibo"]["folder"]).history
    assert curve["loss_on_new_patients"][-1] < 0.7 * curve["loss_on_new_patients"][0]


def test_check_says_what_the_theory_promises(here, call):
    method = "method=ahead[alpha=0.01,gamma=0.1,lam=20]"
    assert "Theorem 1" in tidy(call("check", "quad.toml", "--set", method).out)
    assert call("check", "quad.toml", "--set", method, "--json").json["holds"] is False
    method = "method=ahead_exact[alpha=1e-6,gamma=0.01,lam=20]"
    assert "inequality of Theorem B" in call("check", "quad.toml", "--set", method).out
    assert call("check", "quad.toml", "--set", method, "--json").json["holds"] is True


@pytest.mark.parametrize("kind", ["methods", "problems", "networks", "measures"])
def test_list_names_everything_with_its_settings(call, kind):
    said = call("list", kind, "--json").json[kind]
    assert all(entry["description"] for entry in said)
    shown = tidy(call("list", kind).out)
    assert all(entry["name"] in shown for entry in said)
    names = [entry["name"] for entry in said]
    if kind == "methods":
        assert names == list(decibo.CATALOG)
        assert all(
            entry["provenance"] == decibo.CATALOG[entry["name"]].provenance for entry in said
        )
        assert said[names.index("ahead_exact")]["settings"] == [
            "[alpha]",
            "[gamma]",
            "lam=100.0",
            "[momentum]",
        ]
    if kind == "problems":
        assert {"quadratic", "synthetic", "minimax_auc", "hyper_cleaning"} <= set(names)
        assert not {"minimax", "single_level"} & set(names)
    if kind == "networks":
        assert {"ring", "torus", "erdos_renyi", "directed_ring"} <= set(names)
        assert not {name for name in names if name.startswith("from_")}


def test_doctor_and_version(call):
    tidy(call("doctor").out)
    said = call("doctor", "--json").json
    assert said["versions"]["decibo"] == decibo.__version__
    assert {"mpi", "data", "devices", "extras", "compilation cache"} <= set(said)
    assert call("--version").out.startswith(f"decibo {decibo.__version__}, jax ")


def test_doctor_finds_data(monkeypatch, tmp_path):
    (tmp_path / "a9a").write_text("")
    monkeypatch.setenv("DECIBO_DATA", str(tmp_path))
    assert findings()["data"]["a9a"] == str(tmp_path / "a9a")


@pytest.mark.parametrize("how", ["SIGTERM", "Ctrl-C"])
def test_interrupted_runs_are_written(here, call, monkeypatch, how):
    def report(step, steps, latest):
        if step > 5:
            os.kill(os.getpid(), signal.SIGTERM if how == "SIGTERM" else signal.SIGINT)

    monkeypatch.setattr("decibo.cli.solving.live_view", lambda: report)
    before = signal.getsignal(signal.SIGTERM)
    done = call("run", "quad.toml", "--set", "run.steps=100000", "--set", "run.every=10")
    assert done.code == Exit.INTERRUPTED
    assert json.loads((here / "out/quad/run.json").read_text())["status"] == "interrupted"
    assert "Interrupted at step" in tidy(done.out)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_first_step_ends_the_command_with_a_line(
    here, call, monkeypatch, number
):
    def compiling(*_):
        os.kill(os.getpid(), number)
        raise AssertionError("the signal was swallowed")

    monkeypatch.setattr("decibo.run.loop.begin", compiling)
    done = call("run", "quad.toml")
    assert (done.code, done.err) == (
        Exit.INTERRUPTED,
        "decibo: interrupted; unfinished results were not written\n",
    )
    assert not (here / "out").exists()


def test_a_signal_in_the_last_steps_ends_the_command_and_keeps_the_result(here, call, monkeypatch):
    def report(step, steps, latest):
        if step == steps:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("decibo.cli.solving.live_view", lambda: report)
    done = call("run", "quad.toml", "--set", "run.steps=20", "--set", "run.every=10")
    assert done.code == Exit.INTERRUPTED
    assert json.loads((here / "out/quad/run.json").read_text())["status"] == "done"


def test_resume_continues_where_the_run_stopped(here, call):
    whole = call("run", "quad.toml", "--json", "--out", "whole", "--set", "run.every=5").json
    words = [
        "run",
        "quad.toml",
        "--checkpoint",
        "--out",
        "part",
        "--set",
        "run.every=5",
        "--set",
        "run.steps=20",
    ]
    part = call(*words)
    assert part.code == 0, part.err
    refused = call(*words)
    assert refused.code == 2
    assert "decibo resume part" in refused.err
    for name in ("run.json", "history.csv", "solution.npz"):  # as if it had been killed
        (here / "part" / name).unlink()
    done = call("resume", "part", "--steps", 40, "--json")
    assert done.code == 0, done.err
    assert done.json["steps"] == 40
    assert done.json["last"] == whole["last"]


def test_resume_to_fewer_steps_is_rejected_and_changes_nothing(here, call):
    call("run", "quad.toml", "--checkpoint", "--out", "kept", "--set", "run.steps=20")
    before = {path.name: path.read_bytes() for path in (here / "kept").iterdir() if path.is_file()}
    done = call("resume", "kept", "--steps", 10)
    assert done.code == 2
    assert (
        "has already done 20 steps, and cannot be resumed to 10. Pass --steps of at least 20"
        in done.err
    )
    assert {
        path.name: path.read_bytes() for path in (here / "kept").iterdir() if path.is_file()
    } == before


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_again(here, call):
    options = ["--checkpoint", "--json", "--set", "run.steps=20"]
    whole = call("run", "quad.toml", "--out", "whole", *options).json
    for command in (
        ["run", "quad.toml", "--out", "killed", *options],
        ["resume", "killed", "--json"],
    ):
        shutil.rmtree(here / "killed", ignore_errors=True)
        (here / "killed/checkpoint/.writing-00000020-0123456789abcdef").mkdir(parents=True)
        shutil.copy(here / "whole/config.toml", here / "killed")
        done = call(*command)
        assert done.code == 0, done.err
        assert done.json["last"] == whole["last"]
        assert not [
            path for path in (here / "killed/checkpoint").iterdir() if path.name.startswith(".")
        ]
    assert "no checkpoint was completed, so the run starts from the beginning" in done.err


def test_a_second_run_in_the_same_folder_leaves_its_files_alone(here, call):
    call("run", "quad.toml", "--checkpoint", "--out", "kept", "--set", "run.steps=20")
    before = (here / "kept/config.toml").read_bytes()
    said = []
    with hold(here / "kept/checkpoint"):
        thread = threading.Thread(target=lambda: said.append(call("resume", "kept", "--steps", 30)))
        thread.start()
        thread.join()
    assert said[0].code == 2
    assert "has been in use by process" in said[0].err
    assert (here / "kept/config.toml").read_bytes() == before


def test_a_rejected_resume_leaves_the_configuration_as_it_was(here, call):
    call("run", "quad.toml", "--checkpoint", "--out", "kept", "--set", "run.steps=20")
    path = here / "kept/config.toml"
    path.write_text(path.read_text().replace("seed = 0", "seed = 1"))
    before = path.read_bytes()
    done = call("resume", "kept", "--steps", 30)
    assert done.code == 2
    assert "belongs to another run" in done.err
    assert path.read_bytes() == before


def test_a_full_disk_is_not_a_bug(here, call, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("decibo.files.os.fsync", full)
    done = call("run", "quad.toml", "--json")
    assert done.code == done.json["exit"] == Exit.STORAGE
    assert re.fullmatch(
        r"decibo: out/quad/\S+ could not be written: No space left on device\.\n", done.err
    )


def test_resume_needs_a_run_with_checkpoints(here, call):
    call("run", "quad.toml")
    for folder in ("nowhere", "out/quad"):
        done = call("resume", folder)
        assert (done.code, done.err.count("\n")) == (2, 1)


def test_what_is_unexpected_is_a_short_report(here, call, monkeypatch, tmp_path):
    def broken(*_, **__):
        raise RuntimeError("the sky fell\nand more")

    monkeypatch.setattr(decibo, "solve", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = call("run", "quad.toml")
    assert done.code == Exit.BROKEN
    assert "unexpected RuntimeError: the sky fell" in done.err
    assert "and more" not in done.err
    assert f"decibo {decibo.__version__}, jax " in done.err
    saved = re.search(r"The traceback is in (\S+);", done.err)[1]
    assert "the sky fell\nand more" in Path(saved).read_text()
    shown = call("run", "quad.toml", "--debug")
    assert "Traceback" in shown.err
    assert shown.code == Exit.BROKEN
    assert not (here / "out").exists()


def test_errors_are_json_too(here, call):
    done = call("run", "nowhere.toml", "--json")
    assert done.code == done.json["exit"] == 2
    assert "nowhere.toml" in done.json["error"]


COMMANDS = [command.name or command.callback.__name__ for command in cli.app.registered_commands]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_and_shows_how(call, command):
    text = tidy(call(*command.split(), "--help").out)
    assert "Usage: decibo" in text
    if not command:
        assert all(f"{code}  " in text for code in MEANING)
        assert "..." not in text.partition("Commands:")[2]
    elif command in ("run", "compare", "sweep", "check", "report", "resume"):
        assert f"decibo {command} " in text.partition("Example")[2]


def test_completion_of_the_shell():
    environment = os.environ | {
        "_DECIBO_COMPLETE": "complete_bash", "COMP_WORDS": "decibo re", "COMP_CWORD": "1"
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "decibo"], env=environment, capture_output=True, text=True
    )
    assert set(done.stdout.split()) == {"rehearse", "relay", "report", "reproduce", "resume"}
