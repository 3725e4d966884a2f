"""200 bad configurations and command lines: one clear message, a non-zero exit status, nothing
written."""

import os
import string
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from decibo.cli.errors import Exit
from decibo.runs.folder import to_toml

GOOD = {
    "problem": {"name": "quadratic", "seed": 1},
    "network": {"name": "ring", "agents": 4},
    "method": {"name": "ahead_exact", "alpha": 0.05, "gamma": 0.1},
    "run": {"steps": 20, "measures": ["outer"]},
    "compare": {"methods": ["ahead_exact", "ahead[alpha=0.05,gamma=0.1,lam=20]"]},
    "sweep": {"alpha": [0.05, 0.1]},
}
WORDS = st.text(string.ascii_lowercase + "_", min_size=1, max_size=12)
STRANGE = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=20)
NUMBERS = {
    "problem": ["seed", "agents", "n", "heterogeneity", "condition"],
    "network": ["agents", "rho"],
    "method": ["alpha", "gamma", "lam"],
    "run": ["steps", "every", "seed", "keep", "checkpoint_every"],
}
NO_NUMBER = st.one_of(
    st.sampled_from(["many", "", [], [1], {"a": 1}, True, float("nan"), float("inf")]),
    STRANGE,
    st.lists(WORDS),
)


@st.composite
def broken_keys(draw):
    """A key that no table has."""
    table = draw(st.sampled_from([*GOOD, ""]))
    key = draw(st.one_of(WORDS, STRANGE)) + "_q"
    return (
        GOOD | {key: {"a": 1}}
        if not table
        else GOOD | {table: GOOD[table] | {key: draw(st.integers(0, 9))}}
    )


@st.composite
def broken_types(draw):
    """Something else where a number must be."""
    table = draw(st.sampled_from(sorted(NUMBERS)))
    return GOOD | {table: GOOD[table] | {draw(st.sampled_from(NUMBERS[table])): draw(NO_NUMBER)}}


@st.composite
def broken_values(draw):
    """A number that breaks a rule."""
    table, key, value = draw(
        st.sampled_from(
            [
                ("run", "steps", 0),
                ("run", "steps", 2**40),
                ("run", "every", -1),
                ("run", "seed", -1),
                ("run", "dtype", "float16"),
                ("run", "until", {"stationarity": "small"}),
                ("run", "until", {"speed": 1.0}),
                ("run", "start", {"seed": 1, "scale": -1.0}),
                ("run", "measures", ["consensus_w"]),
                ("network", "agents", 0),
                ("network", "agents", -3),
                ("network", "agents", 5.5),
                ("network", "rho", 2.0),
                ("network", "weights", "heavy"),
                ("network", "failing", 1.5),
                ("problem", "agents", 7),
                ("problem", "seed", -1),
                ("problem", "condition", 0.5),
                ("problem", "data", "digits"),
                ("method", "alpha", -0.1),
                ("method", "lam", 0),
                ("method", "lam", {"name": "growing"}),
                ("method", "lam", {"name": "growing", "start": 1.0, "factor": 0.5}),
                ("method", "lam", {"name": "shrinking", "start": 1.0}),
            ]
        )
    )
    return GOOD | {table: GOOD[table] | {key: value}}


@st.composite
def broken_names(draw):
    """A name that nothing has."""
    table = draw(st.sampled_from(["problem", "network", "method"]))
    name = draw(
        st.one_of(
            WORDS.map(lambda word: word + "_q"), STRANGE.map(lambda text: text + "?"), st.just(7)
        )
    )
    measures = GOOD | {"run": {"measures": [draw(WORDS) + "_q"]}}
    missing = [{}, None] if table == "problem" else []  # the other two have defaults
    whole = GOOD | {table: draw(st.sampled_from([name, {"name": name}, [], 3, *missing]))}
    return draw(st.sampled_from([measures, whole]))


def refused(done, folder, before):
    """One clear message, and nothing new in the folder."""
    assert done.code == Exit.WRONG, (done.code, done.err, done.out)
    assert done.err.startswith("decibo: ")
    assert done.err.count("\n") == 1
    assert len(done.err) > len("decibo: ") + 10
    assert "Traceback" not in done.err
    assert done.out == ""
    assert sorted(os.listdir(folder)) == before


def tried(call, text, *words):
    """The command line on this configuration, in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bad.toml").write_bytes(
            text if isinstance(text, bytes) else text.encode("utf-8", "replace")
        )
        command, *rest = words or ("run",)
        refused(
            call(command, folder / "bad.toml", "--out", folder / "out", *rest), folder, ["bad.toml"]
        )


@given(
    config=st.one_of(broken_keys(), broken_types(), broken_values(), broken_names()),
    which=st.integers(0, 3),
)
def test_bad_configurations(decibo_call, config, which):
    tried(decibo_call, to_toml(config), ["run", "compare", "sweep", "run"][which])


@given(
    st.one_of(
        st.binary(min_size=1, max_size=40), STRANGE.map(lambda text: f"problem = {text}".encode())
    )
)
@example(b"problem = 1\n" * 2)
@example(b"\xff\xfe")
@example(b"problem = " + b"[" * 5000)
@example(b"")
def test_files_that_are_not_toml_or_no_configuration(decibo_call, content):
    tried(decibo_call, content)


@given(
    words=st.one_of(
        st.tuples(st.just("--set"), st.one_of(WORDS, STRANGE, WORDS.map(lambda word: f"run.{word}_q=1"))),
        st.tuples(st.just("-m"), st.one_of(WORDS, STRANGE, st.sampled_from(SPECS := [
            "ahead", "ahead[", "ahead]", "ahead[lam]", "ahead[lam=]", "ahead[=1]", "ahead[lam=20][x=1]", "[lam=20]",
            "ahead[alpha=0.1,gamma=0.1,lam=20,alpha=1]", "ahead[name=1]", "ahead_exact[lam=high]", "sparkle_ed",
            "ahead_exact[alpha=0.1,,gamma=0.1]", "os:system", "ahead[lam=20,nu=3]",
        ]))),
        st.tuples(st.just("-g"), st.one_of(WORDS, STRANGE, st.sampled_from(
            ["alpha", "alpha=", "=1", "alpha=small,large", "alhpa=1,2", "alpha=-1,0.1", "alpha=[[1]]"]))),
    )
)  # fmt: skip
def test_bad_options(decibo_call, words):
    option, value = words
    command = {"--set": "run", "-m": "compare", "-g": "sweep"}[option]
    bare = {key: table for key, table in GOOD.items() if key not in ("compare", "sweep")}
    if option == "-m" and value.strip() == "ahead_exact":
        return
    tried(
        decibo_call,
        to_toml(bare),
        command,
        f"{option}={value}" if option == "--set" else f"{option}{value}",
    )


@given(
    st.lists(
        st.one_of(WORDS, STRANGE, st.sampled_from(["run", "list", "--json", "-o", "--set"])),
        max_size=4,
    )
)
def test_bad_command_lines(decibo_call, words):
    words = [word for word in words if word not in ("-h", "--json")] or ["run"]
    if words[0] in ("demo", "doctor"):
        words = ["list", *words]
    with tempfile.TemporaryDirectory() as name:
        before = os.getcwd()
        os.chdir(name)
        try:
            refused(decibo_call(*words), Path(name), [])
        finally:
            os.chdir(before)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--set", "method.alhpa=0.1"],
            (
                "--set method.alhpa: ahead_exact has no setting alhpa. Its settings are alpha,"
                " gamma, lam, momentum."
            ),
        ),
        (["--set", "network.m=5"], "Did you mean 'agents'?"),
        (["--set", "problem=quadratics"], "Did you mean 'quadratic'?"),
        (["--set", "run.measures=stationary"], "Did you mean 'stationarity'?"),
        (["--set", "runn.steps=5"], "Did you mean 'run'?"),
        (["--set", "run.steps=many"], "--set run.steps must be an integer, but it is 'many'."),
        (["--set", "problem.agents=9"], "The data is for 9 agents, but the network has 4."),
    ],
)
def test_messages_name_the_place_and_the_nearest_name(decibo_call, here, words, said):
    done = decibo_call("run", "quad.toml", *words)
    refused(done, here, ["quad.toml"])
    assert said in done.err


def test_a_key_of_the_file_is_named_with_file_and_table(decibo_call, here):
    (here / "typo.toml").write_text('problem = "quadratic"\n[run]\nstep = 5\n')
    said = decibo_call("run", "typo.toml").err
    assert said.startswith(
        "decibo: typo.toml, [run].step: [run] has no option step. Its options are steps, every,"
    )


def test_folders_that_cannot_be_written(decibo_call, here):
    (here / "file").write_text("")
    (here / "mine").mkdir()
    (here / "mine/thesis.txt").write_text("precious")
    for place in ("file", "file/below", "mine"):
        refused(
            decibo_call("run", "quad.toml", "--out", place), here, ["file", "mine", "quad.toml"]
        )
    assert os.listdir(here / "mine") == ["thesis.txt"]


@pytest.mark.parametrize(
    "words", [["report"], ["report", "nowhere"], ["list", "method"], ["resume", "nowhere"]]
)
def test_other_commands_reject_in_one_line(decibo_call, here, words):
    refused(decibo_call(*words), here, ["quad.toml"])
