"""Files of the user's are kept, refusals leave nothing behind, and what is broken is named."""

import os
import shutil
from dataclasses import replace

import jax.numpy as jnp
import pytest

import decibo
from decibo.cli import terminal
from decibo.cli.errors import Exit
from decibo.cli.script import opened
from decibo.cli.solving import judged
from decibo.report import read_run, report
from helpers.runs import curve, written


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def refused(done, *said):
    assert done.code == Exit.WRONG, done.err
    assert (
        len([line for line in done.err.splitlines() if not line.startswith("decibo: note: ")]) == 1
    )
    assert all(word in done.err for word in said), done.err


@pytest.fixture
def idle(monkeypatch):
    """Nothing may be computed."""

    def computed(*_, **__):
        raise AssertionError("it was run")

    monkeypatch.setattr(decibo, "solve", computed)
    monkeypatch.setattr(decibo, "sweep", computed)


@pytest.mark.parametrize("command", ["run", "sweep", "checkpoint"])
@pytest.mark.parametrize(
    "name", ["code/quad.py", "history.csv", "run.json", "sweep.csv", "solution.npz"]
)
def test_names_alone_do_not_make_a_file_ours(here, idle, decibo_call, command, name):
    (here / "exp" / name).parent.mkdir(parents=True)
    (here / "exp" / name).write_text("mine")
    before = files(here)
    words = ["run", "--checkpoint"] if command == "checkpoint" else [command]
    words += ["-g", "alpha=0.01,0.02"] if command == "sweep" else []
    refused(decibo_call(*words, "quad.py", "--out", "exp"), "cannot be written to exp", name)
    assert files(here) == before


def test_a_run_in_the_folder_of_its_file_is_refused(here, idle, decibo_call):
    for words in (["run"], ["run", "--checkpoint"], ["sweep", "-g", "alpha=0.1,0.2"]):
        refused(decibo_call(*words, "quad.py", "--out", "."), "quad.py")
    assert list(files(here)) == ["quad.py"]


def test_code_that_was_edited_is_not_replaced(here, decibo_call):
    assert decibo_call("run", "quad.py").code == 0
    path = here / "out/quad/code/quad.py"
    path.write_text(path.read_text() + "# and a note\n")
    before = files(here)
    refused(decibo_call("run", "quad.py"), "'code/quad.py', which has been edited")
    assert files(here) == before
    path.unlink()
    assert decibo_call("run", "quad.py").code == 0


def test_write_run_deletes_nothing_that_is_not_of_a_run(tmp_path):
    folder = tmp_path / "run"
    (folder / "code").mkdir(parents=True)
    (folder / "code/mine.py").write_text("mine")
    with pytest.raises(decibo.InputError, match=r"code/mine\.py"):
        written(folder, curve([1.0, 0.5]))
    assert files(folder) == {"code/mine.py": b"mine"}
    (folder / "code/mine.py").unlink()
    written(folder, curve([1.0, 0.5]))
    (folder / "history.parquet").write_text("mine")  # put there after the run
    before = files(folder)
    with pytest.raises(decibo.InputError, match=r"history\.parquet"):
        written(folder, curve([1.0, 0.5]))
    assert files(folder) == before


def test_a_sweep_replaces_a_sweep_and_nothing_else(here, decibo_call, monkeypatch):
    words = ["sweep", "quad.py", "-g", "alpha=0.01,0.02", "--out", "swept"]
    assert decibo_call(*words).code == 0
    assert decibo_call(*words).code == 0
    (here / "swept/notes.txt").write_text("mine")
    assert decibo_call(*words).code == 0
    (here / "swept/sweep.csv").write_text("annotated")
    before = files(here)
    refused(decibo_call(*words), "sweep.csv")
    assert files(here) == before


def test_a_page_replaces_a_page_and_nothing_else(tmp_path):
    folder = written(tmp_path / "run", curve([1.0, 0.5]))
    page = report(folder, tmp_path / "page.html")
    report(folder, page)
    for content in ("<p>mine", ""):
        (tmp_path / "thesis.html").write_text(content)
        with pytest.raises(decibo.InputError, match="decibo did not write it"):
            report(folder, tmp_path / "thesis.html")
        assert (tmp_path / "thesis.html").read_text() == content


@pytest.mark.parametrize("command", ["run", "compare", "sweep"])
def test_a_folder_that_cannot_be_written_is_found_before_the_run(here, idle, decibo_call, command):
    extra = {"compare": ["-m", "ahead_exact"], "sweep": ["-g", "alpha=0.01,0.02"]}.get(command, [])
    refused(decibo_call(command, "quad.py", *extra, "--out", "/proc/decibo"), "/proc/decibo")


@pytest.mark.parametrize(
    "names",
    [
        {"measures": "['nowhere']"},
        {"until": "{'phi': 1.0, 'consensus_q': 1.0}"},
        {"start": "decibo.random_start(1, {'q': 1.0})"},
        {"measures": "[lambda s: s.missing]"},
    ],
)
def test_a_refused_run_with_checkpoints_leaves_no_folder(here, write, decibo_call, names):
    write(**names)
    done = decibo_call("run", "quad.py", "--checkpoint", "--out", "a/b")
    assert done.code == (Exit.OWN if "lambda" in str(names) else Exit.WRONG), done.err
    assert sorted(os.listdir(here)) == ["quad.py"]


def test_a_run_that_fails_before_its_first_checkpoint_leaves_what_was_there(
    here, decibo_call, monkeypatch
):
    assert decibo_call("run", "quad.py", "--out", "a").code == 0
    before = files(here)

    def refuse(*_, **__):
        raise decibo.InputError("No.")

    monkeypatch.setattr(decibo, "solve", refuse)
    for folder in ("a", "b/c"):
        refused(decibo_call("run", "quad.py", "--out", folder, "--checkpoint", "--steps", 3))
    assert files(here) == before
    assert sorted(os.listdir(here)) == ["a", "quad.py"]


@pytest.mark.slow
def test_a_run_with_a_network_for_each_variable_goes_on(here, write, decibo_call):
    networks = "{'x': decibo.networks.path(4), 'y': decibo.complete(4), 'z': decibo.complete(4)}"
    write(network=networks, measures='"outer"')
    words = ["run", "quad.py", "--json"]
    straight = decibo_call(*words, "--out", "out/straight")
    assert straight.code == 0, straight.err
    assert decibo_call(*words, "--checkpoint", "--steps", 25, "--out", "out/kept").code == 0
    resumed = decibo_call("resume", "out/kept", "--steps", 40, "--json").json
    assert (resumed["steps"], resumed["last"]) == (40, straight.json["last"])


# compare


def test_methods_with_similar_labels_have_folders_of_their_own(here, decibo_call):
    text = f"ahead_exact[alpha=0.05{'0' * 40},gamma=0.1{'0' * 40},lam={{}}]"
    words = [
        part for lam in ("10.00000000000000001", "10.5", 20) for part in ("-m", text.format(lam))
    ]
    done = decibo_call("compare", "quad.py", *words, "--steps", 2, "--json")
    assert done.code == 0, done.err
    folders = [run["folder"] for run in done.json["runs"]]
    assert len({folder.lower() for folder in folders}) == 3
    settings = [read_run(here / folder).method["settings"]["lam"] for folder in folders]
    assert settings == [10.0, 10.5, 20.0]


def test_the_same_method_in_other_words_is_listed_twice(here, idle, decibo_call):
    words = ("-m", "ahead_exact[lam=20]", "-m", "ahead_exact[ lam = 20.0 ]")
    refused(decibo_call("compare", "quad.py", *words), "listed twice")


def test_measures_without_a_column_are_named(write, decibo_call):
    write(measures='["outer", "inner", "stationarity"]', steps="2")
    assert "Also recorded: inner." in decibo_call("compare", "quad.py", "-m", "ahead_exact").out


def test_methods_are_compared_by_what_does_not_depend_on_the_method(here, write, decibo_call):
    """AHEAD rests where its own direction vanishes, far from the solution, with a y that makes f
    small."""
    write(
        measures=None,
        steps="400",
        methods="[method, decibo.ahead(alpha=0.05, gamma=0.1, lam=20.0)]",
    )
    text = decibo_call("compare", "quad.py").out
    assert text.split()[:5] == ["method", "status", "stationarity", "phi", "outer"]
    assert "direction_norm. --json prints them" in " ".join(text.split())
    exact, ahead = (
        read_run(here / "out/quad-compare" / name).history for name in ("ahead_exact", "ahead")
    )
    assert ahead["direction_norm"][-1] < 1e-12
    assert ahead["outer"][-1] < exact["outer"][-1]
    assert ahead["stationarity"][-1] > 1e6 * exact["stationarity"][-1]
    assert ahead["phi"][-1] > exact["phi"][-1]


def test_without_a_cheap_exact_answer_methods_are_compared_by_the_answer_itself(write):
    small = decibo.problems.quadratic(2)
    with opened("quad.py") as script:
        assert judged(script, small) is script  # it names its own
    write(measures=None)
    large = decibo.Problem(
        lambda x, y, d: x * d + 0 * y[0],
        lambda x, y, d: (y**2).sum() + x * d,
        jnp.ones(2),
        0.0,
        jnp.ones(300),
    )
    flat = replace(small, inner=lambda x, y, d: (x**2).sum() + 0 * y[0], inner_solution=None)
    with opened("quad.py") as bare:
        assert judged(bare, small).settings.measures == ("cheap", "phi", "stationarity")
        assert judged(bare, large) is bare
        assert judged(bare, flat) is bare
    assert terminal.ordered(["direction_norm", "step", "mine", "outer"]) == [
        "outer",
        "mine",
        "direction_norm",
    ]


# reports


def broken_runs(folder):
    """One sound run, and four that are not; what must be said about each."""
    for name in ("sound", "cut", "history", "killed", "lost"):
        written(folder / name, curve([1.0, 0.5]), label=name)
    (folder / "cut/run.json").write_bytes((folder / "cut/run.json").read_bytes()[:-20])
    (folder / "history/history.csv").write_text("step,outer\n0,1\n")
    shutil.rmtree(folder / "killed")
    (folder / "killed/checkpoint").mkdir(parents=True)
    (folder / "lost/run.json").unlink()
    (folder / "figures").mkdir()
    return {
        "cut": "not JSON",
        "history": "checksum differs",
        "killed": "run.json is missing",
        "lost": "run.json is missing",
    }


def test_broken_runs_are_left_out_and_named(here, decibo_call):
    reasons = broken_runs(here / "runs")
    done = decibo_call("report", "runs", "--latex", "table.tex")
    assert done.code == 0, done.err
    notes = done.err.splitlines()
    page = (here / "runs/report.html").read_text()
    assert len(notes) == len(reasons)
    for name, reason in reasons.items():
        assert [note for note in notes if f"runs/{name}" in note and reason in note]
        assert f"runs/{name}" in page
    assert page.count("Left out: ") == 4
    assert "sound" in page


def test_a_broken_run_alone_is_an_error_and_beside_another_a_note(here, decibo_call):
    broken_runs(here / "runs")
    for name in ("cut", "history", "killed", "lost"):
        refused(decibo_call("report", f"runs/{name}"), f"runs/{name}")
        done = decibo_call("report", f"runs/{name}", "runs/sound", "--out", f"{name}.html")
        assert (done.code, done.err.count("Left out: ")) == (0, 1)


# what is not a file, not short, or not flat


@pytest.mark.parametrize("name", ["pipe", "zero", "large", "folder", "loop"])
def test_only_regular_files_of_reasonable_size_are_read(here, decibo_call, name):
    os.mkfifo(here / "pipe")
    (here / "zero").symlink_to("/dev/zero")
    (here / "loop").symlink_to("loop")
    (here / "folder").mkdir()
    with (here / "large").open("wb") as file:
        file.truncate(1 << 33)
    refused(decibo_call("run", name), f"{name} cannot be read")
    written(here / "run", curve([1.0, 0.5]))
    for inside in ("run.json", "history.csv"):
        shutil.copytree(here / "run", here / inside)
        (here / inside / inside).unlink()
        (here / name).rename(here / inside / inside)
        refused(decibo_call("report", inside), inside)
        (here / inside / inside).rename(here / name)


# numbers, agents, help


def test_check_takes_no_settings_beyond_all_numbers(here, decibo_call):
    for lam in ("1e300", "1e100"):
        words = ("check", "quad.py", "-m", f"ahead[alpha=0.1,gamma=0.1,lam={lam}]")
        refused(decibo_call(*words), "between 1e-60 and 1e+60")


def test_check_of_an_extreme_problem_is_refused(write, decibo_call):
    write(problem="decibo.problems.quadratic(4, heterogeneity=1e30)")
    refused(decibo_call("check", "quad.py"), "too large for floating-point numbers")


@pytest.mark.parametrize("kind", ["failing", "sleeping"])
def test_one_agent_may_be_unreliable(kind):
    network = getattr(decibo.networks, kind)(decibo.ring(1), 0.5)
    problem = decibo.problems.quadratic(1)
    method = decibo.ahead_exact(alpha=0.05, gamma=0.1)
    ends = [
        decibo.solve(problem, net, method, steps=20, measures=["outer"])
        for net in (network, decibo.ring(1))
    ]
    assert ends[0].history["outer"].tolist() == ends[1].history["outer"].tolist()


def test_a_method_names_itself_and_all_that_it_lacks():
    with pytest.raises(TypeError, match=r"ahead needs gamma=\.\.\., lam=\.\.\.\."):
        decibo.ahead(alpha=0.1)
    with pytest.raises(TypeError, match="sparkle_ed"):
        decibo.methods.sparkle_ed(alhpa=0.1)


def test_without_words_there_is_help(decibo_call):
    done = decibo_call()
    assert done == decibo_call("--help")
    assert len(done.out.splitlines()) > 20
    assert max(map(len, done.out.splitlines())) <= 80
