"""Reading configurations: types, names, places, and methods written on the command line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import decibo
from decibo import rule
from decibo.cli import config
from decibo.cli.config import build, parse_spec
from decibo.cli.registry import choose, convert, methods, networks, options_of, problems
from decibo.cli.seeds import changes
from decibo.errors import InputError
from decibo.runs.folder import to_toml

pytestmark = pytest.mark.quick


def read(folder, text, **more):
    (folder / "c.toml").write_text(text)
    return config.read(folder / "c.toml", **more)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("ahead", {"name": "ahead"}),
        ("ahead[]", {"name": "ahead"}),
        (" ahead [ lam = 20 , alpha=1e-3 ] ", {"name": "ahead", "lam": 20, "alpha": 1e-3}),
        ("lopa[tracking=true,theta=none]", {"name": "lopa", "tracking": True, "theta": "none"}),
        (
            'ahead[lam={name="growing", start=2.0},gamma=0.1]',
            {"name": "ahead", "lam": {"name": "growing", "start": 2.0}, "gamma": 0.1},
        ),
        ("my_module:make[word='a,b']", {"name": "my_module:make", "word": "a,b"}),
    ],
)
def test_methods_on_the_command_line(text, wanted):
    assert parse_spec(text) == wanted


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.floats(allow_nan=False) | st.booleans()
    )
)
def test_what_is_written_is_read(settings):
    settings.pop("name", None)
    text = ",".join(f"{name}={str(value).lower()}" for name, value in settings.items())
    assert parse_spec(f"ahead[{text}]") == {"name": "ahead", **settings}


def test_a_configuration_may_be_short_or_long(tmp_path):
    short = read(tmp_path, 'problem = "quadratic"')
    long = read(
        tmp_path, '[problem]\nname = "quadratic"\n[method]\n[network]\nname = "ring"\n[run]\n'
    )
    for found in (short, long):
        parts, full = build(found)
        assert (parts.problem.agents, parts.network.agents, parts.method.name) == (
            10,
            10,
            "ahead_exact",
        )
        assert config.resolved(full)["network"]["agents"] == 10


def test_the_number_of_agents_is_said_once(tmp_path):
    parts, _ = build(
        read(tmp_path, 'problem = "quadratic"\nnetwork = { name = "torus", rows = 2, columns = 3 }')
    )
    assert parts.problem.agents == parts.network.agents == 6
    parts, _ = build(
        read(tmp_path, 'problem = { name = "quadratic", agents = 5 }\nnetwork = "path"')
    )
    assert parts.problem.agents == parts.network.agents == 5


def test_data_by_name_by_table_and_by_file(tmp_path, monkeypatch):
    text = 'problem = {{ name = "logistic_hyperparameters", agents = 4, data = {} }}'
    parts, _ = build(read(tmp_path, text.format('"breast_cancer"')))
    assert parts.problem.name == "logistic, breast cancer"
    parts, full = build(
        read(tmp_path, text.format('{ name = "digits", positive = 4, negative = 9 }'))
    )
    assert parts.problem.name == "logistic, digits 4 against 9"
    assert config.resolved(full)["problem"]["data"] == {
        "name": "digits",
        "positive": 4,
        "negative": 9,
    }
    lines = [f"{1 if k % 2 else -1} 1:{k} 2:{-k}" for k in range(1, 41)]
    (tmp_path / "small").write_text("\n".join(lines))
    monkeypatch.setenv("DECIBO_DATA", str(tmp_path))
    parts, _ = build(read(tmp_path, text.format('"small"')))
    assert parts.problem.name == "logistic, small"


def test_schedules_and_switched_off_defaults(tmp_path):
    method = (
        'name = "d_soba"\nalpha = { name = "polynomial", start = 0.1, power = -0.5 }\nbeta ='
        " 0.1\ngamma = 0.1\n"
    )
    parts, full = build(read(tmp_path, f'problem = "quadratic"\n[method]\n{method}theta = "none"'))
    assert float(parts.method.settings["alpha"](3)) == pytest.approx(0.05)
    assert parts.method.settings["theta"] is None
    assert config.resolved(full)["method"]["theta"] == "none"


def test_networks_may_fail(tmp_path):
    parts, full = build(
        read(tmp_path, 'problem = "quadratic"\n[network]\nagents = 10\nfailing = 0.25')
    )
    assert parts.network.rate == 0.25
    assert config.resolved(full)["network"]["failing"] == 0.25


EACH = """
problem = "quadratic"
[network]
agents = 6
[network.x]
name = "path"
[network.y]
name = "small_world"
neighbours = 2
p = 0.3
failing = 0.1
[network.z]
name = "small_world"
neighbours = 2
p = 0.3
failing = 0.1
[method]
alpha = 0.05
gamma = 0.1
"""


def test_every_variable_may_have_a_network_of_its_own(tmp_path):
    parts, full = build(read(tmp_path, EACH))
    network = parts.network
    assert network.groups == (("x",), ("y", "z"))  # equal tables are one network
    assert [each.name for each in network.networks] == ["path", "small_world with failing links"]
    assert parts.problem.agents == 6
    again, _ = build(read(tmp_path, to_toml(config.resolved(full))))  # as a run folder stores it
    assert again.network.rate == network.rate
    # written out: what a seed no longer changes
    assert changes(full)[0] == ["problem.seed", "run.seed"]
    assert changes(read(tmp_path, EACH))[0] == [
        "problem.seed",
        "network.y.seed",
        "network.z.seed",
        "run.seed",
    ]


def test_one_network_says_how_many_agents_all_have(tmp_path):
    text = EACH.replace("agents = 6\n", "").replace('"path"', '"grid"\nrows = 2\ncolumns = 3')
    assert build(read(tmp_path, text))[0].problem.agents == 6
    text = EACH.replace("agents = 6\n", "")
    assert build(read(tmp_path, text))[0].network.agents == 10  # the problem's own number


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("network.name=ring", "names the network 'ring' and has a table for x, y, z"),
        ("network.q=3", "--set network.q: there is no option of these networks 'q'"),
        ("network.x.rows=3", "--set network.x.rows: path has no option rows"),
        ("network.x=pth", "--set network.x: there is no network 'pth'. Did you mean 'path'?"),
        ("network.x.agents=5", "must have the same agents, but there are [5, 6]"),
        (
            "network.x.failing=2",
            "--set network.x: probability must be a number between 0 and 1, but it is 2.0",
        ),
        ("network.x=directed_ring", "The network of x must be an undirected decibo network"),
        ("network.v.name=path", "moves x, y, z, but there are networks for v, x, y, z"),
        (
            "method.alpha=none",
            "finds its step sizes over one network, but there is one for each variable",
        ),
    ],
)
def test_networks_that_do_not_fit_are_rejected(tmp_path, change, said):
    with pytest.raises(InputError) as error:
        build(read(tmp_path, EACH, sets=[change]))
    assert said in str(error.value)


def test_options_are_those_of_the_functions():
    for registry in (problems(), networks(), methods()):
        for factory in registry.factories.values():
            assert options_of(factory) or factory is decibo.problems.synthetic
    assert [name for name, option in options_of(decibo.networks.erdos_renyi).items() if option.required] == [
        "agents", "p", "seed"
    ]  # fmt: skip
    assert "prox_x" not in options_of(decibo.methods.lv_hba)


@pytest.mark.parametrize(
    ("value", "hint", "good"),
    [
        (3, int, True),
        (3.0, int, False),
        (True, int, False),
        (3, float, True),
        (10**400, float, False),
        (float("nan"), float, False),
        ("a", str, True),
        ([1, 2], list[float], True),
        ([1, "a"], list[float], False),
        ({"a": 1.0}, dict[str, float], True),
        ({"a": "b"}, dict[str, float], False),
        ("none", float | None, True),
        ("none", float, False),
    ],
)
def test_types(value, hint, good):
    if good:
        assert convert(value, hint, "here") == (None if value == "none" else value)
    else:
        with pytest.raises(InputError, match="here"):
            convert(value, hint, "here")


def test_set_reaches_inside_and_replaces(tmp_path):
    text = 'problem = "quadratic"\n[run]\nuntil = { stationarity = 1e-3 }\nmeasures = ["outer"]'
    found = read(
        tmp_path,
        text,
        sets=["problem.n=2", "run.until.stationarity=1e-4", "network=star", "network.agents=3"],
    )
    assert (found.problem.name, found.problem.options) == ("quadratic", {"n": 2})
    # as sweep says
    tuned = read(
        tmp_path, text, sets=["method=ahead[alpha=0.3,gamma=0.1,lam=20]", "method.alpha=0.5"]
    )
    assert (tuned.method.name, tuned.method.options) == (
        "ahead",
        {"alpha": 0.5, "gamma": 0.1, "lam": 20.0},
    )
    assert found.run.until == {"stationarity": 1e-4}
    [(_, network)] = found.network.choices
    assert (network.name, network.options) == ("star", {"agents": 3})


def test_a_step_size_may_be_a_rule_and_lam_may_not():
    steps = {
        "alpha": {"name": "amsgrad", "step": 0.03},
        "beta": {"name": "heavy_ball", "step": 0.1},
        "gamma": 0.1,
    }
    made = choose({"name": "sldbo", **steps}, methods(), "here").make()
    assert repr(made) == repr(
        decibo.methods.sldbo(alpha=rule.amsgrad(0.03), beta=rule.heavy_ball(0.1), gamma=0.1)
    )
    with pytest.raises(InputError, match="no schedule 'adam'"):
        choose({"name": "ahead", "lam": {"name": "adam", "step": 0.1}}, methods(), "here")
