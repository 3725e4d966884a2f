"""Every command does what it says, in words and as JSON, within 80 columns and without colours."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.cli import app as cli
from decibo.cli import demo
from decibo.cli.doctor import findings
from decibo.cli.errors import MEANING, Exit
from decibo.run.lock import hold

OWN = """
import jax
import jax.numpy as jnp

def outer(x, y, d):
    return jnp.sum((y - d) ** 2)

def inner(x, y, d):
    return jnp.sum((y - 2.0 * x) ** 2)

def worst(s):
    return jnp.max(jnp.abs(s.x))

def make(agents, outer=outer):
    targets = jnp.arange(2.0 * agents).reshape(agents, 2)
    return decibo.Problem(outer, inner, targets, x0=jnp.zeros(2), y0=jnp.zeros(2), name="own")

def bad_outer(x, y, d):
    return jnp.sum(d.missing)
"""


@pytest.fixture
def call(decibo_call):
    return decibo_call


def tidy(text):
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= 80
    return text


@pytest.mark.quick
def test_run_writes_a_folder_that_describes_itself(here, call):
    done = call("run", "quad.py", "--steps", 30)
    assert (done.code, done.err) == (Exit.RAN, "")
    assert "stationarity" in tidy(done.out)
    assert "Written to out/quad" in done.out
    assert "Next: decibo report out/quad" in done.out
    assert (here / "out/quad/code/quad.py").read_text() == (here / "quad.py").read_text()
    record = json.loads((here / "out/quad/run.json").read_text())
    assert (record["status"], record["seed"], record["network"]["agents"]) == ("done", 0, 4)
    assert record["config"] == {
        "file": "quad.py",
        "method": "ahead_exact(alpha=0.05, gamma=0.1, lam=100)",
        "steps": 30,
        "measures": ["stationarity", "consensus_x"],
        "seed": 0,
        "memory": "normal",
    }


def test_the_kept_file_gives_the_same_run_again(here, call):
    first = call("run", "quad.py", "--json")
    again = call("run", "out/quad/code/quad.py", "--json", "--out", "again")
    assert first.json["last"] == again.json["last"]


def test_json_is_the_run_that_python_makes(here, call):
    found = call("run", "quad.py", "--json").json
    solution = decibo.solve(
        decibo.problems.quadratic(4),
        decibo.ring(4),
        decibo.ahead_exact(alpha=0.05, gamma=0.1),
        steps=40,
        measures=["stationarity", "consensus_x"],
    )
    for name in ("stationarity", "consensus_x"):
        np.testing.assert_allclose(found["last"][name], solution.history[name][-1], rtol=1e-6)
    assert found["cost"]["bytes_total"] == solution.cost.bytes_total


def test_a_file_may_choose_single_precision(write, here, call):
    write(code='import jax\njax.config.update("jax_enable_x64", False)')
    call("run", "quad.py")
    assert np.load(here / "out/quad/solution.npz")["x"].dtype == np.float32
    assert jnp.zeros(1).dtype == np.float64  # and it was put back


def test_callbacks_of_the_file_look_at_the_run(write, call):
    write(callbacks="[lambda step, measures: step >= 20]", every="5")
    done = call("run", "quad.py", "--json")
    assert done.code == Exit.RAN, done.err
    assert (done.json["status"], done.json["steps"]) == ("stopped", 20)


def test_a_run_that_diverges_ends_with_one(here, call):
    done = call("run", "quad.py", "-m", "ahead_exact[alpha=1e4]", "--steps", 400)
    assert done.code == Exit.DIVERGED
    assert "Lower alpha" in tidy(done.out)
    assert "Next: decibo check quad.py -m 'ahead_exact[alpha=1e4]'" in done.out


@pytest.mark.parametrize(
    "method",
    [
        "ahead_exact(alpha=1e-9, gamma=0.5)",
        pytest.param("ahead(alpha=1e-9, gamma=0.5, lam=1e4)", marks=pytest.mark.slow),
        pytest.param("methods.sparkle_ed(alpha=1e-9, beta=0.3, gamma=0.3)", marks=pytest.mark.slow),
    ],
)
def test_the_direction_norm_estimates_stationarity(write, call, method):
    """With x at rest and the inner variables settled, it is |grad Phi|^2 itself."""
    problem = "decibo.problems.quadratic(4, heterogeneity=0.0)"
    common = {"problem": problem, "method": f"decibo.{method}", "steps": "400", "every": "400"}
    write("exact.py", **common, measures='"stationarity"')
    write("cheap.py", **common, measures=None)
    exact = call("run", "exact.py", "--json").json["last"]
    cheap = call("run", "cheap.py", "--json").json["last"]
    assert set(exact) == {"stationarity"}
    assert {"direction_norm", "outer"} < set(cheap)
    np.testing.assert_allclose(cheap["direction_norm"], exact["stationarity"], rtol=1e-2)


def test_own_problem_and_measure(write, call):
    write(
        code=OWN,
        problem="make(3)",
        network="decibo.networks.star(3)",
        method="decibo.ahead_exact(alpha=0.01, gamma=0.3)",
        steps="500",
        measures="[worst]",
        until='{"worst": 0.5}',
    )
    done = call("run", "quad.py", "--json")
    assert done.code == 0, done.err
    # mean target (2, 3) over 2; it starts below its target, which therefore does not count
    assert done.json["last"]["worst"] == pytest.approx(1.5, rel=1e-3)


@pytest.mark.parametrize(
    ("problem", "place", "line"),
    [
        ("make(4 // 0)", "quad.py raised ZeroDivisionError", "problem = make(4 // 0)"),
        (
            "make(4, bad_outer)",
            "outer(x0, y0, data of one agent) raised AttributeError",
            "return jnp.sum(d.missing)",
        ),
    ],
)
def test_a_bug_of_the_user_keeps_its_traceback(write, here, call, problem, place, line):
    write(code=OWN, problem=problem)
    done = call("run", "quad.py")
    first, *rest = done.err.splitlines()
    assert done.code == Exit.OWN
    assert place in first
    assert "Traceback (most recent call last):" in rest
    assert line in done.err
    assert "script.py" not in done.err  # it starts in the user's own file
    assert not (here / "out").exists()


def test_a_file_that_cannot_be_run_keeps_its_traceback(here, call):
    for name, text in {
        "one": "import nowhere_at_all\n",
        "two": "def broken(:\n",
        "three": "import beside\n",
    }.items():
        (here / f"{name}.py").write_text(text)
        (here / "beside.py").write_text("raise RuntimeError('from beside')\n")
        done = call("run", f"{name}.py", "--json")
        assert done.code == done.json["exit"] == Exit.OWN
        assert f"{name}.py raised" in done.err.splitlines()[0]
    assert "from beside" in done.err


def test_compare_keeps_every_run(here, call):
    words = ["ahead_exact", "ahead[alpha=0.02,beta=0.005,gamma=0.1,lam=20]"]
    words += ["sparkle_ed[alpha=0.05, beta=0.1, gamma=0.1]"]
    done = call("compare", "quad.py", *(part for word in words for part in ("-m", word)))
    assert done.code == 0, done.err
    assert "sparkle_ed" in tidy(done.out)
    settings = {
        path.parent.name: json.loads(path.read_text())["method"]
        for path in here.glob("out/*/*/run.json")
    }
    assert set(settings) == {
        "ahead_exact",
        "ahead_alpha=0.02_beta=0.005_gamma=0.1_lam=20",
        "sparkle_ed_alpha=0.05_beta=0.1_gamma=0.1",
    }
    assert settings["ahead_exact"]["settings"]["alpha"] == 0.05  # that of the file
    for unused in (["--log", "--size", "3x2"], ["--measure", "outer"]):
        done = call("report", "out/quad-compare", *unused)
        assert (done.code, "would change nothing" in done.err) == (2, True)
    page = call("report", "out/quad-compare")
    assert page.code == 0, page.err
    assert (here / "out/quad-compare/report.html").is_file()


def test_compare_tells_which_run_came_to_nothing(here, call):
    words = ["-m", "ahead_exact", "-m", "ahead[alpha=0.05,beta=0.1,gamma=0.1,lam=20]"]
    done = call("compare", "quad.py", *words)
    assert done.code == Exit.DIVERGED
    text = " ".join(done.out.split())
    assert "lam=20]: The run produced no valid result after 40 steps. The largest" in text
    statuses = {
        path.parent.name[:11]: json.loads(path.read_text())["status"]
        for path in here.glob("out/*/*/run.json")
    }
    assert statuses == {"ahead_exact": "done", "ahead_alpha": "diverged"}
    latex = call("report", "out/quad-compare", "--latex", "-").out
    assert latex.startswith("% \\usepackage{booktabs}")
    assert latex.endswith("\\end{tabular}\n\n")  # and nothing else
    assert "& diverged &" in latex
    done = call("report", "out/quad-compare", "--latex", "table.tex")
    assert (here / "table.tex").read_text() + "\n" == latex
    assert "Written to table.tex" in done.out


@pytest.mark.parametrize(
    ("methods", "labels"),
    [
        (
            "[decibo.ahead_exact(), decibo.ahead(alpha=0.01, gamma=0.1, lam=10.0)]",
            ["ahead_exact", "ahead"],
        ),
        (
            "[decibo.ahead_exact(), decibo.ahead_exact(lam=10.0)]",
            ["ahead_exact()", "ahead_exact(lam=10)"],
        ),
        ('{"ours": decibo.ahead_exact(alpha=0.05, gamma=0.1)}', ["ours"]),
    ],
)
def test_compare_takes_its_methods_from_the_file(write, call, methods, labels):
    write("two.py", methods=methods, steps="5")
    runs = call("compare", "two.py", "--json").json["runs"]
    assert [run["label"] for run in runs] == labels


def test_sweep_finds_the_best(here, call):
    done = call("sweep", "quad.py", "-g", "alpha=0.001,0.05,1e4", "--steps", 300)
    assert done.code == 0, done.err
    assert "Next: decibo run quad.py -m 'ahead_exact[alpha=0.05]'" in tidy(done.out)
    assert (here / "out/quad-sweep/sweep.csv").read_text().count("\n") == 4
    assert (here / "out/quad-sweep/code/quad.py").is_file()
    words = ["-m", "ahead_exact[lam=50, gamma=0.1]", "-g", "alpha=0.001,0.05", "--seeds", 2]
    said = " ".join(call("sweep", "quad.py", *words, "--steps", 300).out.split())
    assert said.index("0.05 2 done") < said.index("0.001 2 done")
    assert "in the mean of 2 seeds: alpha=0.05" in said
    assert "Next: decibo run quad.py -m 'ahead_exact[lam=50, gamma=0.1, alpha=0.05]'" in said
    lost = call("sweep", "quad.py", "-g", "alpha=1e4,1e5", "--steps", 300, "--json")
    assert lost.code == Exit.DIVERGED
    assert [row["status"] for row in lost.json["rows"]] == ["diverged", "diverged"]


def test_init_writes_a_file_that_runs_with_every_command(here, call):
    assert call("init").code == 0
    for command in ("run", "compare", "sweep", "check"):
        done = call(command, "mine.py")
        assert (done.code, done.err) == (0, "")
        tidy(done.out)
    again = call("init", "mine.py")
    assert (again.code, "exists already" in again.err) == (Exit.WRONG, True)


def remembering(function):
    """The function, which computes everything once: words and JSON are about the same runs."""
    known = {}

    def call(data, network, *chosen):
        key = data.features.tobytes(), data.labels.tobytes(), str(chosen)
        if key not in known:
            known[key] = function(data, network, *chosen)
        return known[key]

    return call


@pytest.mark.slow
def test_the_demo_compares_and_ends_with_a_page(here, call, monkeypatch):
    monkeypatch.setattr(demo, "SPLITS", (43, 1))
    for function in (demo.learn, demo.mistaken):
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
    assert f">{together:.4g}<" in page
    assert ">Budapest</text>" in page
    assert page.count(">alone<") == 4
    assert together >= scores["all records in one place, if allowed"][0] - 0.025
    assert all(together > score[0] for label, score in scores.items() if label.endswith("alone"))
    found = said["mistaken"]
    assert all("Budapest" in asked for asked in found["asked"])
    nothing, alone, trust = map(np.mean, found["accuracy"].values())
    assert trust > alone - 0.01 > nothing + 0.05
    curve = decibo.report.read_run(here / said["runs"]["together, with decibo"]["folder"]).history
    assert curve["loss_on_new_patients"][-1] < 0.7 * curve["loss_on_new_patients"][0]


def test_check_says_what_the_theory_promises(here, call):
    method = "ahead[alpha=0.01,gamma=0.1,lam=20]"
    assert "Theorem 1" in tidy(call("check", "quad.py", "-m", method).out)
    assert call("check", "quad.py", "-m", method, "--json").json["holds"] is False
    method = "ahead_exact[alpha=1e-6,gamma=0.01,lam=20]"
    assert "inequality of Theorem B" in call("check", "quad.py", "-m", method).out
    assert call("check", "quad.py", "-m", method, "--json").json["holds"] is True


def test_check_compares_the_gradients_with_differences(here, call):
    text = (here / "quad.py").read_text()
    lying = "\nimport dataclasses, jax\nfrom jax.lax import stop_gradient as stop\nold = problem.inner\n"
    lying += (
        "problem = dataclasses.replace(problem, inner=lambda x, y, d: old(x, y, d) + stop(y) @ y)\n"
    )
    (here / "lying.py").write_text(text + lying)
    said = call("check", "lying.py", "-m", "ahead[alpha=0.01,gamma=0.1,lam=20]").err
    said = " ".join(said.split())
    assert "has a stop_gradient of something that depends on y" in said
    assert "fails 1 of 5 checks: inner in y: the gradient is not that of the values" in said


@pytest.mark.parametrize("kind", ["methods", "problems", "networks", "measures"])
def test_list_names_everything_with_its_settings(call, kind):
    said = call("list", kind, "--json").json[kind]
    assert all(entry["description"] for entry in said)
    shown = tidy(call("list", kind).out)
    assert all(entry["name"] in shown for entry in said)
    names = [entry["name"] for entry in said]
    if kind == "methods":
        known = decibo.CATALOG | decibo.contrib.CATALOG
        assert sorted(names) == sorted(known)
        assert all(entry["provenance"] == known[entry["name"]].provenance for entry in said)
        assert said[names.index("ahead_exact")]["settings"] == [
            "[alpha]",
            "[gamma]",
            "[lam]",
            "[momentum]",
        ]
    if kind == "problems":
        assert {"quadratic", "synthetic", "minimax", "hyper_cleaning"} <= set(names)
    if kind == "networks":
        assert {"ring", "torus", "erdos_renyi", "directed_ring"} <= set(names)


def test_doctor_and_version(call):
    tidy(call("doctor").out)
    said = call("doctor", "--json").json
    assert said["versions"]["decibo"] == decibo.__version__
    assert {"mpi", "data", "devices", "extras", "compilation cache"} <= set(said)
    version = call("--version").out
    assert version.startswith(f"decibo {decibo.__version__}, ")
    assert f"jax {jax.__version__}, " in version


def test_doctor_finds_data(monkeypatch, tmp_path):
    (tmp_path / "a9a").write_text("")
    monkeypatch.setenv("DECIBO_DATA", str(tmp_path))
    assert findings()["data"]["a9a"] == str(tmp_path / "a9a")


@pytest.mark.parametrize("how", ["SIGTERM", "Ctrl-C"])
def test_interrupted_runs_are_written(write, here, call, monkeypatch, how):
    def report(step, steps, latest):
        if step > 5:
            os.kill(os.getpid(), signal.SIGTERM if how == "SIGTERM" else signal.SIGINT)

    monkeypatch.setattr("decibo.cli.solving.live_view", lambda: report)
    before = signal.getsignal(signal.SIGTERM)
    write(every="10")
    done = call("run", "quad.py", "--steps", 100_000)
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
    done = call("run", "quad.py")
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
    done = call("run", "quad.py", "--steps", 20)
    assert done.code == Exit.INTERRUPTED
    assert json.loads((here / "out/quad/run.json").read_text())["status"] == "done"


def test_resume_continues_where_the_run_stopped(write, here, call):
    write(every="5")
    whole = call("run", "quad.py", "--json", "--out", "whole").json
    words = ["run", "quad.py", "--checkpoint", "--out", "part", "--steps", 20]
    part = call(*words)
    assert part.code == 0, part.err
    refused = call(*words)
    assert refused.code == 2
    assert "decibo resume part" in refused.err
    for name in ("run.json", "history.csv", "solution.npz"):  # as if it had been killed
        (here / "part" / name).unlink()
    shutil.rmtree(here / "part/code")
    done = call("resume", "part", "--steps", 40, "--json")
    assert done.code == 0, done.err
    assert done.json["steps"] == 40
    assert done.json["last"] == whole["last"]


def test_resume_to_fewer_steps_is_rejected_and_changes_nothing(here, call):
    call("run", "quad.py", "--checkpoint", "--out", "kept", "--steps", 20)
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
    options = ["--checkpoint", "--json", "--steps", 20]
    whole = call("run", "quad.py", "--out", "whole", *options).json
    for command in (
        ["run", "quad.py", "--out", "killed", *options],
        ["resume", "killed", "--json"],
    ):
        shutil.rmtree(here / "killed", ignore_errors=True)
        (here / "killed/checkpoint/.writing-00000020-0123456789abcdef").mkdir(parents=True)
        shutil.copytree(here / "whole/checkpoint/code", here / "killed/checkpoint/code")
        shutil.copy(here / "whole/checkpoint/settings.json", here / "killed/checkpoint")
        done = call(*command)
        assert done.code == 0, done.err
        assert done.json["last"] == whole["last"]
        assert not [
            path for path in (here / "killed/checkpoint").iterdir() if path.name.startswith(".")
        ]
    assert "no checkpoint was completed, so the run starts from the beginning" in done.err


def test_a_second_run_in_the_same_folder_leaves_its_files_alone(here, call):
    call("run", "quad.py", "--checkpoint", "--out", "kept", "--steps", 20)
    before = (here / "kept/checkpoint/settings.json").read_bytes()
    found = []
    with hold(here / "kept/checkpoint"):
        resume = lambda: found.append(call("resume", "kept", "--steps", 30))
        thread = threading.Thread(target=resume)
        thread.start()
        thread.join()
    assert found[0].code == 2
    assert "has been in use by process" in found[0].err
    assert (here / "kept/checkpoint/settings.json").read_bytes() == before


def test_resume_goes_on_with_the_copy_and_rejects_other_code_or_data(write, here, call):
    (here / "beside.py").write_text("from pathlib import Path\nWIDTH = 2\n")
    (here / "data.txt").write_text("1.0")
    data = "float((beside.Path(__file__).parent / 'data.txt').read_text())"
    write(
        code=f"import beside\nimport jax.numpy as jnp\nD = jnp.full((4, 1), {data})",
        problem="decibo.Problem(lambda x, y, d: jnp.sum((y - d) ** 2), lambda x, y, d:"
        " jnp.sum((y - beside.WIDTH * x) ** 2), D, jnp.zeros(1), jnp.zeros(1))",
        every="5",
    )
    whole = call("run", "quad.py", "--out", "whole", "--json").json
    first = call("run", "quad.py", "--checkpoint", "--out", "kept", "--steps", 20)
    assert first.code == 0, first.err
    settings = (here / "kept/checkpoint/settings.json").read_bytes()
    (here / "beside.py").write_text("raise RuntimeError\n")
    (here / "quad.py").write_text("raise RuntimeError\n")
    (here / "data.txt").write_text("2.0")
    other = call("resume", "kept", "--steps", 40)
    assert (other.code, "began with other data of agent 0" in other.err) == (2, True), other.err
    assert (here / "kept/checkpoint/settings.json").read_bytes() == settings
    (here / "data.txt").write_text("1.0")
    copy = here / "kept/checkpoint/code/beside.py"
    good = copy.read_text()
    copy.write_text(good + "# a word\n")
    other = call("resume", "kept", "--steps", 40)
    assert other.code == 2
    assert "kept/checkpoint/code/beside.py is not what it was when the run began" in other.err
    copy.write_text(good)
    done = call("resume", "kept", "--steps", 40, "--json")
    assert done.code == 0, done.err
    assert "quad.py has changed; the run goes on with its copy" in done.err
    assert done.json["last"] == whole["last"]
    assert call("resume", "kept", "--json").json["steps"] == 40
    assert not list(here.glob("kept/**/__pycache__"))


def test_a_full_disk_is_not_a_bug(here, call, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("decibo.files.os.fsync", full)
    done = call("run", "quad.py", "--json")
    assert done.code == done.json["exit"] == Exit.STORAGE
    assert re.fullmatch(
        r"decibo: out/quad/\S+ could not be written: No space left on device\.\n", done.err
    )


def test_resume_needs_a_run_with_checkpoints(here, call):
    call("run", "quad.py")
    for folder in ("nowhere", "out/quad"):
        done = call("resume", folder)
        assert (done.code, done.err.count("\n")) == (2, 1)


def test_what_is_unexpected_is_a_short_report(here, call, monkeypatch, tmp_path):
    def broken(*_, **__):
        raise RuntimeError("the sky fell\nand more")

    monkeypatch.setattr(decibo, "solve", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = call("run", "quad.py")
    assert done.code == Exit.BROKEN
    assert "unexpected RuntimeError: the sky fell" in done.err
    assert "and more" not in done.err
    assert f"decibo {decibo.__version__}, " in done.err
    saved = re.search(r"The traceback is in (\S+);", done.err)[1]
    assert "the sky fell\nand more" in Path(saved).read_text()
    shown = call("run", "quad.py", "--debug")
    assert "Traceback" in shown.err
    assert shown.code == Exit.BROKEN
    assert not (here / "out").exists()


def test_errors_are_json_too(here, call):
    done = call("run", "nowhere.py", "--json")
    assert done.code == done.json["exit"] == 2
    assert "nowhere.py" in done.json["error"]


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
    assert set(done.stdout.split()) == {"rehearse", "relay", "report", "resume"}
