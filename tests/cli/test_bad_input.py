"""Bad files and command lines: one clear message, a non-zero exit status, nothing written."""

import os
import string
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decibo.cli.errors import Exit

WORDS = st.text(string.ascii_lowercase + "_", min_size=1, max_size=12)
STRANGE = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=20)


def refused(done, folder, before):
    """One clear message, and nothing new in the folder."""
    assert done.code == Exit.WRONG, (done.code, done.err, done.out)
    assert done.err.startswith("decibo: ")
    assert done.err.count("\n") == 1
    assert len(done.err) > len("decibo: ") + 10
    assert "Traceback" not in done.err
    assert done.out == ""
    assert sorted(os.listdir(folder)) == before


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"problem": None}, "quad.py defines no problem. Define problem, or make_problem(seed)."),
        ({"problem": "3"}, "quad.py: problem must be a decibo.Problem, but it is 3."),
        ({"problem": None, "make_problem": "3"}, "make_problem must be a function"),
        ({"problem": None, "make_problem": "lambda seed: 3"}, "make_problem(seed) must return"),
        ({"make_problem": "lambda seed: 3"}, "quad.py defines both problem and make_problem."),
        ({"problem": None, "my_problem": "3"}, "Did you mean 'my_problem'?"),
        ({"network": "'ring'"}, "network must be a decibo.Network, but it is 'ring'."),
        ({"network": "decibo.ring(9)"}, "The data is for 4 agents, but the network has 9."),
        (
            {
                "problem": "decibo.Problem(lambda x, y, d: x, lambda x, y, d: y * y,"
                " lambda agent: 0.0, 0.0, 0.0)",
                "network": None,
            },
            "tells how many agents there are",
        ),
        ({"method": "'ahead'"}, "a method must be a decibo.Algorithm, but it is 'ahead'."),
        ({"steps": "0"}, "steps must be a positive integer, but it is 0."),
        ({"steps": "2**40"}, "steps must be at most"),
        ({"every": "-1"}, "every must be a positive integer, but it is -1."),
        ({"seed": "'one'"}, "seed must be an integer of at least 0, but it is 'one'."),
        ({"seeds": "'few'"}, "seeds must be a number or a list of integers"),
        ({"seeds": "[1, 1]"}, "seeds must not repeat a seed"),
        ({"measures": "['stationary']"}, "Did you mean 'stationarity'?"),
        ({"until": "{'speed': 1.0}"}, "speed"),
        ({"start": "3"}, "start must be a dictionary of stacked points"),
        ({"memory": "'much'"}, "memory must be one of normal, less, low"),
        ({"history": "'xlsx'"}, "history must be one of csv, parquet"),
        ({"checkpoint_every": "0"}, "checkpoint_every must be a positive integer"),
    ],
)
def test_names_that_are_not_what_they_must_be(decibo_call, write, here, names, message):
    write(**names)
    done = decibo_call("run", "quad.py")
    refused(done, here, ["quad.py"])
    assert message in done.err


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("quad.toml", "problem = 1", "quad.toml is not a Python file"),
        ("quad.py", "import sys\nsys.exit(3)", "ended the program (SystemExit)"),
        ("quad.py", "", "defines no problem"),
    ],
)
def test_files_that_define_nothing(decibo_call, here, file, content, message):
    (here / "quad.py").unlink()
    (here / file).write_text(content)
    done = decibo_call("run", file)
    refused(done, here, [file])
    assert message in done.err


def test_a_name_that_is_probably_a_slip_is_noted(decibo_call, write):
    write(mesures="[]", measures=None, steps="2")
    done = decibo_call("run", "quad.py")
    assert done.code == Exit.RAN
    assert done.err == (
        "decibo: note: quad.py defines mesures, which decibo does not read. Did you mean"
        " measures?\n"
    )


SPECS = (
    "ahead", "ahead[", "ahead]", "ahead[lam]", "ahead[lam=]", "ahead[=1]", "ahead[lam=20][x=1]", "[lam=20]",
    "ahead[alpha=0.1,gamma=0.1,lam=20,alpha=1]", "ahead[name=1]", "ahead_exact[lam=high]", "sparkle_ed",
    "ahead_exact[alpha=0.1,,gamma=0.1]", "os:system", "ahead[lam=20,nu=3]", "ahead_exact[lam=" + "(" * 300 + "]",
)  # fmt: skip
GRIDS = ("alpha", "alpha=", "=1", "alpha=small,large", "alhpa=1,2", "alpha=-1,0.1", "alpha=[[1]]")


@settings(max_examples=50)
@given(
    words=st.one_of(
        st.tuples(st.just("-m"), st.one_of(WORDS, STRANGE, st.sampled_from(SPECS))),
        st.tuples(st.just("-g"), st.one_of(WORDS, STRANGE, st.sampled_from(GRIDS))),
        st.tuples(st.just("--seeds"), st.sampled_from(["0", "1,1", "few", "-1", "1,a", "[]", ","])),
        st.tuples(st.just("--steps"), st.sampled_from(["0", "-1", "many", "1e3", str(2**40)])),
    )
)
def test_bad_options(decibo_call, words):
    option, value = words
    if value.strip() == "ahead_exact":
        return
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "bad.py"
        file.write_text(
            "import decibo\nproblem = decibo.problems.quadratic(4)\n"
            "method = decibo.ahead_exact(alpha=0.05, gamma=0.1)\nsteps = 20\n"
        )
        command = {"-m": "compare", "-g": "sweep"}.get(option, "run")
        done = decibo_call(
            command, file, "--out", Path(name) / "out", f"{option}{'=' * (option[1] == '-')}{value}"
        )
        refused(done, name, ["bad.py"])


@settings(max_examples=25)
@given(
    st.lists(
        st.one_of(WORDS, STRANGE, st.sampled_from(["run", "list", "--json", "-o", "-m"])),
        max_size=4,
    )
)
def test_bad_command_lines(decibo_call, words):
    words = [word for word in words if word not in ("-h", "--json")] or ["run"]
    if words[0] in ("demo", "doctor", "init"):
        words = ["list", *words]
    with tempfile.TemporaryDirectory() as name:
        before = os.getcwd()
        os.chdir(name)
        try:
            refused(decibo_call(*words), Path(name), [])
        finally:
            os.chdir(before)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["-m", "ahead_exact[alhpa=0.1]"],
            (
                "-m ahead_exact[alhpa=0.1]: ahead_exact has no setting alhpa. Its settings are"
                " alpha, gamma, lam, momentum. Did you mean 'alpha'?"
            ),
        ),
        (["-m", "ahed_exact"], "Did you mean 'ahead_exact'? `decibo list methods` lists all"),
        (["-m", "ahead[alpha=0.1]"], "ahead needs gamma=..., lam=..."),
        (["-m", "ahead_exact[lam=high]"], "-m ahead_exact[lam=high]: "),
        (["-m", "ahead_exact[" + "a" * 10_000], "must read name or name[setting=value, ...]"),
        (["--out", "\x1b[2J/" * 3, "--steps", "0"], "steps must be a positive integer"),
    ],
)
def test_messages_name_the_place_and_the_nearest_name(decibo_call, here, words, message):
    done = decibo_call("run", "quad.py", *words)
    refused(done, here, ["quad.py"])
    assert message in done.err
    assert len(done.err) < 700
    assert done.err[:-1].isprintable()


def test_folders_that_cannot_be_written(decibo_call, here):
    (here / "file").write_text("")
    (here / "mine").mkdir()
    (here / "mine/thesis.txt").write_text("precious")
    for place in ("file", "file/below", "mine"):
        refused(decibo_call("run", "quad.py", "--out", place), here, ["file", "mine", "quad.py"])
    assert os.listdir(here / "mine") == ["thesis.txt"]


@pytest.mark.parametrize(
    "words",
    [
        ["report"],
        ["report", "nowhere"],
        ["list", "method"],
        ["resume", "nowhere"],
        ["init", "mine.txt"],
    ],
)
def test_other_commands_reject_in_one_line(decibo_call, here, words):
    refused(decibo_call(*words), here, ["quad.py"])
