"""What a notebook shows: every kind has a table, names are escaped, courses and networks are
drawn; and the drawings of matplotlib."""

import dataclasses
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import decibo

pytestmark = pytest.mark.quick
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(scope="module")
def shown():
    problem = decibo.problems.quadratic(agents=4)
    method = decibo.ahead_exact(alpha=0.05, gamma=0.1)
    options = {"steps": 20, "every": 5, "measures": ["stationarity", "outer"]}
    return {
        "problem": problem,
        "network": decibo.ring(4),
        "directed": decibo.networks.directed_ring(4),
        "method": method,
        "solution": decibo.solve(problem, decibo.ring(4), method, **options),
        "repeats": decibo.repeat(problem, decibo.ring(4), method, seeds=2, **options),
        "sweep": decibo.sweep(problem, decibo.ring(4), method, {"alpha": [0.01, 0.05]}, **options),
        "reference": decibo.reference(problem),
    }


def parsed(thing):
    """The cells of the table, and the drawings; it must be well-formed."""
    tree = ET.fromstring(f"<div>{thing._repr_html_()}</div>")
    rows = [["".join(cell.itertext()) for cell in row] for row in tree.iter("tr")]
    return rows, list(tree.iter("svg"))


def test_every_kind_has_a_table_and_what_can_be_drawn(shown):
    tables = {name: parsed(thing) for name, thing in shown.items()}
    assert ["agents", "4"] in tables["problem"][0]
    assert ["links", "4"] in tables["network"][0]
    assert ["links", "4 directed"] in tables["directed"][0]
    assert ["alpha", "0.05"] in tables["method"][0]
    assert [row[0] for row in tables["solution"][0]] == ["measure", "stationarity", "outer"]
    drawings = {name: len(drawings) for name, (_, drawings) in tables.items()}
    assert drawings == dict.fromkeys(shown, 0) | {
        "network": 1,
        "directed": 1,
        "solution": 2,
        "repeats": 2,
    }
    first, *rows = tables["sweep"][0]
    assert first == ["alpha", "seed", "status", "stationarity", "outer"]
    assert rows[0][0] == "0.05"  # the best first


def test_a_measure_of_many_numbers_has_no_column(shown):
    swept = shown["sweep"]
    wide = dataclasses.replace(swept, history=swept.history | {"all": np.zeros((2, 5, 1000))})
    assert parsed(wide)[0] == parsed(swept)[0]


def test_a_run_that_failed_does_not_win(shown):
    failed = dataclasses.replace(shown["sweep"], status=("done", "failed"))
    assert [row[0] for row in parsed(failed)[0][1:]] == ["0.01", "0.05"]


def test_the_course_of_a_measure_goes_through_its_records(shown):
    _, drawings = parsed(shown["solution"])
    line = next(drawings[0].iter("polyline")).attrib["points"]
    points = np.array([pair.split(",") for pair in line.split()], float)
    values = np.log10(shown["solution"].history["stationarity"])
    expected = (values.max() - values) / np.ptp(values)
    np.testing.assert_allclose(np.diff(points[:, 0]), np.ptp(points[:, 0]) / 4, atol=0.11)
    np.testing.assert_allclose((points[:, 1] - 2) / 20, expected, atol=0.01)


def test_names_are_escaped():
    problem = decibo.problems.quadratic(agents=2)
    object.__setattr__(problem, "name", "<b>&")
    assert "<b>" not in problem._repr_html_()


def test_a_solution_is_one_line_of_a_terminal(shown):
    for thing in (shown["solution"], shown["reference"]):
        assert len(repr(thing)) <= 80
    assert re.fullmatch(
        r"Solution\(done after 20 steps of ahead_exact on 4 agents, \w+=.*\)",
        repr(shown["solution"]),
    )


def test_runs_are_drawn(shown):
    axes = shown["solution"].plot()
    assert axes.get_yscale() == "log"
    (line,) = axes.lines  # outer is negative
    np.testing.assert_array_equal(line.get_ydata(), shown["solution"].history["stationarity"])
    both = shown["repeats"].plot("stationarity", "outer", ax=plt.subplots()[1])
    assert both.get_yscale() == "linear"
    assert [line.get_label() for line in both.lines] == ["stationarity", "outer"]
    assert len(both.collections) == 2
    with pytest.raises(decibo.InputError, match="recorded measure"):
        shown["solution"].plot("phi")
    plt.close("all")
