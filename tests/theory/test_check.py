"""check: the paper's own example, other methods, and JSON."""

import json

import pytest

import decibo
from decibo.problems.minimax import minimax_quadratic
from decibo.problems.synthetic import synthetic
from decibo.theory import ahead_exact_steps
from decibo.theory.check import check

pytestmark = pytest.mark.quick

STEPS = {"alpha": 7e-4, "beta": 1e-3, "gamma": 1e-2, "lam": 20.0}


def paper_network():
    return decibo.networks.erdos_renyi(10, 0.7, seed=1)


def test_the_papers_synthetic_steps():
    result = check(synthetic(), paper_network(), decibo.ahead(**STEPS))
    c = result.constants
    assert (c.mu_g, c.L_f1, c.L_g1, c.L_g2, c.estimated) == pytest.approx((4, 4, 32, 0, False))
    assert result.factors["gamma"] == pytest.approx(500, rel=0.15)
    assert result.factors["beta"] == pytest.approx(3000, rel=0.2)
    assert result.factors["alpha"] == pytest.approx(1.2e7, rel=0.1)
    assert not result.holds
    text = str(result)
    assert max(map(len, text.splitlines())) <= 80
    assert "sufficient, far from necessary" in text
    assert "lower first gamma" in text
    assert text.count("  NO") == sum(not slack.holds for slack in result.slacks.values())
    data = json.loads(result.to_json())
    assert data["factors"]["alpha"] == result.factors["alpha"]
    assert data["inequalities"]["alpha < 1/(2 L)"]["holds"]
    assert data["floor"]["total"] == result.floor.floor


def test_what_changes_first():
    network = paper_network()
    small = check(synthetic(), network, decibo.ahead(**(STEPS | {"lam": 1.0})))
    assert "raise lam above 2" in small.advice
    assert not small.slacks["lam > 2 L_f1/mu_g"].holds
    t = small.theorem.__class__(small.constants, small.rho, 20.0)
    covered = check(
        synthetic(), network, decibo.ahead(alpha=t.alpha, beta=t.beta, gamma=t.gamma, lam=20.0)
    )
    assert covered.holds
    assert "covers this run" in str(covered)
    matched = check(synthetic(), network, decibo.ahead(alpha=1e-4, gamma=1e-2, lam=lambda k: 20.0))
    assert matched.settings["beta"] == pytest.approx(5e-4)


def test_other_methods_and_minimax():
    other = check(
        synthetic(), paper_network(), decibo.methods.d_soba(alpha=1e-3, beta=1e-2, gamma=1e-2)
    )
    assert other.theorem is None
    assert "AHEAD" in str(other)
    assert "mu_g" in str(other)
    assert json.loads(other.to_json())["holds"] is False
    game = minimax_quadratic(4, 2, 2)
    result = check(
        game, decibo.ring(4), decibo.methods.ahead_minimax(alpha=0.1, beta=0.1, gamma=0.1, lam=2.0)
    )
    assert result.constants.minimax
    assert result.floor.penalty == 0


@pytest.mark.parametrize(("lam", "holds"), [(0.5, False), (1.0, True), (1.5, True)])
def test_lam_of_minimax(lam, holds):
    """Below 1 y moves away from y*: that is what to change, and no bound is negative."""
    steps = {"alpha": 1e-9, "beta": 1e-9, "gamma": 1e-5}
    result = check(
        minimax_quadratic(4, 2, 2), decibo.ring(4), decibo.methods.ahead_minimax(**steps, lam=lam)
    )
    assert result.slacks["lam >= 1"].holds == holds
    assert ("raise lam to 1 or more" in result.advice) == (not holds)
    assert all(slack.bound > 0 for slack in result.slacks.values())
    assert not holds or not [
        name for name, slack in result.slacks.items() if slack.step == "lam" and not slack.holds
    ]


def test_ahead_exact_and_theorem_b():
    problem = synthetic()
    network = paper_network()
    large = check(problem, network, decibo.ahead_exact(alpha=7e-4, gamma=1e-2, lam=20.0))
    assert not large.holds
    assert not large.slacks["4 sigma alpha N <= 1 - sigma"].holds
    assert large.slacks["gamma L_yy < 2"].value == pytest.approx(0.32)
    text = str(large)
    assert max(map(len, text.splitlines())) <= 80
    assert "inequality of Theorem B" in text
    assert "sufficient, not necessary" in text
    assert "floor of |grad Phi|^2: 0" in text  # g is quadratic
    rule = ahead_exact_steps(large.constants, network)
    assert f"alpha = {rule.alpha:.3g}" in large.advice
    covered = check(
        problem, network, decibo.ahead_exact(alpha=rule.alpha, gamma=rule.gamma, lam=1e3)
    )
    assert covered.holds
    assert covered.factors["alpha"] == pytest.approx(1)
    data = json.loads(covered.to_json())
    assert (data["theorem"], data["holds"], data["floor"]["F"]) == ("Theorem B", True, 0)
    assert data["inequalities"]["alpha (L_Phi + 2 G1) + 2 alpha^2 G2 <= 1"]["holds"]
    between = check(problem, network, decibo.ahead_exact(alpha=1.2 * rule.alpha, gamma=rule.gamma))
    assert between.holds
    assert "do not all hold" in between.advice
    wild = check(problem, network, decibo.ahead_exact(alpha=7e-4, gamma=0.1))  # gamma L_g1 = 3.2
    assert not wild.holds
    assert "Lower gamma below" in wild.advice
    assert "alpha" not in wild.factors
    json.loads(wild.to_json())
    left = check(problem, network, decibo.ahead_exact())
    assert not left.holds
    assert "The agents find the step sizes" in left.advice


def test_the_floor_of_theorem_b():
    bent = decibo.problems.quadratic(4, bend=0.1)
    ring = decibo.ring(4)
    results = [
        check(bent, ring, decibo.ahead_exact(alpha=1e-5, gamma=0.1, lam=lam)) for lam in (1e3, 1e4)
    ]
    assert all(result.holds for result in results)
    first, second = (result.floor.F for result in results)
    assert first == pytest.approx(10 * second, rel=0.1)  # without L_g3
    assert "L_g3 is not known" in str(results[0])
    assert max(map(len, str(results[0]).splitlines())) <= 80


def test_sparkle_ed_without_moving_average_is_covered_without_a_floor():
    bent = decibo.problems.quadratic(4, bend=0.1)
    steps = {"alpha": 1e-5, "beta": 0.1, "gamma": 0.1}
    covered = check(bent, decibo.ring(4), decibo.methods.sparkle_ed(**steps, theta=None))
    assert covered.holds
    assert covered.floor.F == 0
    assert "floor of |grad Phi|^2: 0" in str(covered)
    for other in (steps, steps | {"beta": 0.2, "theta": None}):
        result = check(bent, decibo.ring(4), decibo.methods.sparkle_ed(**other))
        assert not result.holds
        assert "beta" in result.advice


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "words"),
    [
        (decibo.networks.failing(decibo.ring(4), 0.1), "do not change"),
        (decibo.networks.directed_ring(4), "undirected"),
        (
            decibo.networks.each(dict.fromkeys("xyz", decibo.ring(4))),
            "one network for all variables",
        ),
    ],
)
def test_networks_that_theorem_b_does_not_cover(network, words):
    result = check(decibo.problems.quadratic(4), network, decibo.ahead_exact(alpha=1e-5, gamma=0.1))
    assert result.theorem is None
    assert words in result.advice


def test_invalid_arguments_are_rejected():
    with pytest.raises(decibo.InputError, match="10 agents, but the network has 4"):
        check(synthetic(), decibo.ring(4), decibo.ahead(**STEPS))
    with pytest.raises(decibo.InputError, match="lam must be between"):
        check(synthetic(), paper_network(), decibo.ahead_exact(alpha=1e-5, gamma=1e-2, lam=1e-200))
    with pytest.raises(decibo.InputError, match="in this order"):
        check(decibo.ring(4), synthetic(), decibo.ahead(**STEPS))  # type: ignore[arg-type]


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="nothing"):
        _ = decibo.theory.nothing
