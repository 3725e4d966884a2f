"""Every combination of features that cannot work is refused, in a sentence with a remedy, before
any work starts.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo import compression, consensus, direction, estimator, networks, privacy, prox, rule
from decibo.data import Stream
from decibo.silo.site_run import prepare
from helpers.sites import make_job

pytestmark = pytest.mark.quick

RING = decibo.ring(4)
COMPLETE = decibo.complete(4)
DIRECTED = networks.directed_ring(4)
FAILING = networks.failing(RING, 0.1)
ASYNC = networks.asynchronous(RING, delay=2)
ROUNDS = networks.chebyshev(RING, 2)
EACH = networks.each({"x": RING, "y": COMPLETE, "z": COMPLETE})

PROBLEM = decibo.problems.quadratic(agents=4)
AUTOMATIC = decibo.ahead_exact()
FIXED = decibo.ahead_exact(alpha=0.1, gamma=0.1)
AHEAD = decibo.ahead(alpha=0.1, beta=0.1, gamma=0.1, lam=50.0)
FREE = decibo.methods.ahead_free(alpha=0.05, gamma=0.1)
SOLO = decibo.methods.bome(alpha=0.1, gamma=0.1)
LOOPS = decibo.methods.c2dfb(alpha=0.1, beta=0.1, gamma=0.1, lam=50.0)
SLDBO = decibo.methods.sldbo(alpha=0.1, beta=0.1, gamma=0.1)
SAGA = decibo.with_estimator(FIXED, estimator.saga())
PAGE = decibo.with_estimator(FIXED, estimator.page(0.5))
PACKED = compression.compressed(FIXED, compression.top_k(0.5))


def single(strategy, **options):
    return decibo.compose(direction.single(), strategy, x=0.1, y=0.1, **options)


def with_sample(sample, data=None):
    data = {"c": jnp.zeros((4, 2))} if data is None else data
    square = lambda x, y, d: jnp.sum((y - x) ** 2) + jnp.mean(d["c"] ** 2)
    return decibo.Problem(square, square, data, jnp.zeros(2), jnp.zeros(2), sample=sample)


STREAM = with_sample(Stream.from_arrays([{"c": np.zeros((8, 2))} for _ in range(4)], 4))
UNNUMBERED = with_sample(lambda d, key: d)


@jax.custom_vjp
def fused(y):
    return 0.5 * jnp.sum(y**2)


fused.defvjp(lambda y: (fused(y), y), lambda y, g: (g * y,))  # as kernels are: first derivatives


FIRST = decibo.Problem(
    lambda x, y, d: jnp.sum((x - y) ** 2), lambda x, y, d: fused(y - x), jnp.zeros(4), 0.0, 0.0
)


def solve(network=RING, method=FIXED, problem=PROBLEM, **options):
    return lambda: decibo.solve(problem, network, method, steps=2, **options)


def job(method=FIXED, network=RING, problem=PROBLEM, **options):
    return lambda: make_job(problem, method, network=network, **options)


def free(method=FREE, network=RING, **options):
    return job(method, network, mode="free", **options)


def summed(method=FIXED, network=COMPLETE, **options):
    return job(method, network, secure_sums=True, **options)


def in_a_loop():
    """A method whose messages leave it from inside a loop."""
    step = lambda oracle, mix, s, k, key: jax.lax.fori_loop(0, 2, lambda _, s: mix(s), s)
    return decibo.Algorithm(lambda oracle, mix, start: start, step, lambda s: s, name="loops")


# What is asked for: (the call, what the sentence says, what the remedy names).
REFUSED = {
    # a method on a network
    "gossip on a directed network": (solve(DIRECTED, AHEAD), "ahead needs symmetric", "fab"),
    "exact on a directed network": (solve(DIRECTED), "ahead_exact needs symmetric", "fab"),
    "automatic on a directed network": (solve(DIRECTED, AUTOMATIC), "ahead_exact", "fab"),
    "compressed push-pull on a directed network": (
        solve(DIRECTED, compression.compressed(
            single(consensus.push_pull()), compression.rounded())),
        "needs symmetric", "fab",
    ),
    "sums of messages, links that fail": (solve(FAILING, PACKED), "keeps sums", "fixed network"),
    "inner loops with messages, links that fail": (
        solve(FAILING, LOOPS), "c2dfb keeps sums", "fixed network"),
    "sums of messages, one variable's links fail": (
        solve({"x": RING, "y": RING, "z": FAILING}, LOOPS), "c2dfb", "network"),
    "one agent, several agents": (solve(RING, SOLO), "bome is a centralised", r"complete\(1\)"),
    "automatic, a network for each variable": (
        solve(EACH, AUTOMATIC), "finds its step sizes", "alpha and gamma"),
    "not composed, a network for each variable": (
        solve(EACH, LOOPS), "does not say which variable", "one network for all"),
    "compressed, a network for each variable": (
        solve(EACH, compression.compressed(FIXED, compression.rounded())),
        "does not say which variable", "one network for all",
    ),
    "networks for other variables": (
        solve({"x": RING, "y": RING}), "moves x, y, z, but there are", "one for each"),
    "needs lockstep, late messages": (solve(ASYNC), "both ends of a link", "ahead_free"),
    "tracking, late messages": (
        solve(ASYNC, single(consensus.tracking())), "both ends of a link", "ahead_free"),
    "automatic, late messages": (solve(ASYNC, AUTOMATIC), "ahead_exact", "ahead_free|alpha"),
    "compressed, late messages": (
        solve(ASYNC, compression.compressed(FREE, compression.top_k(0.5))),
        "both ends of a link", "ahead_free",
    ),
    "not a projection, late messages": (
        solve(ASYNC, single(consensus.robust_tracking(), prox={"x": prox.l1(0.1)})),
        "projection", r"prox\.box",
    ),
    "wrapped, relayed": (
        solve(networks.asynchronous(RING, relay=True), decibo.local_steps(FREE, 2)),
        "not just a direction times a consensus strategy", "relay",
    ),
    "an estimator, relayed": (
        solve(networks.asynchronous(RING, relay=True),
              decibo.with_estimator(FREE, estimator.snapshot(0.5))),
        "not just a direction times a consensus strategy", "relay",
    ),
    # a method on a problem
    "minibatches, none to draw": (solve(RING, decibo.minibatch(FIXED)), "draws minibatches",
                                  "sample="),
    "SAGA, nothing to draw": (solve(RING, SAGA), "batch", "Batches"),
    "SAGA, batches without a number": (
        solve(RING, SAGA, UNNUMBERED), "remembers what it found on every batch", "Batches"),
    "SAGA, a stream": (solve(RING, SAGA, STREAM), "remembers what it found", "Batches"),
    "all data, a stream": (solve(RING, FIXED, STREAM), "takes gradients on all data", "minibatch"),
    "all data now and then, a stream": (
        solve(RING, PAGE, STREAM), "takes gradients on all data", "storm"),
    "second derivatives, a fused kernel": (
        solve(RING, SLDBO, FIRST), "sldbo needs products with second derivatives", "ahead_exact"),
    "another number of agents": (solve(decibo.ring(5)), "for 4 agents, but .* has 5", "4 agents"),
    # a network inside another
    "rounds on changing links": (lambda: networks.chebyshev(FAILING, 2), "chebyshev", ""),
    "rounds on late messages": (lambda: networks.chebyshev(ASYNC, 2), "chebyshev", ""),
    "rounds of rounds": (lambda: networks.chebyshev(ROUNDS, 2), "chebyshev", ""),
    "rounds on a directed network": (lambda: networks.chebyshev(DIRECTED, 2), "chebyshev", ""),
    "rounds that fail": (lambda: networks.failing(ROUNDS, 0.1), "failing|Only", ""),
    "a directed network that fails": (lambda: networks.failing(DIRECTED, 0.1), "failing|Only", ""),
    "late messages and links that fail": (
        lambda: networks.sleeping(ASYNC, 0.1), "sleeping|Only", ""),
    "changing links without waiting": (
        lambda: networks.asynchronous(FAILING), "asynchronous", ""),
    "rounds without waiting": (lambda: networks.asynchronous(ROUNDS), "asynchronous", ""),
    "a directed network without waiting": (
        lambda: networks.asynchronous(DIRECTED), "asynchronous", ""),
    "directed for one variable": (
        lambda: networks.each({"x": RING, "y": DIRECTED}), "undirected|symmetric", ""),
    "each of each": (lambda: networks.each({"x": RING, "y": EACH}), "network", ""),
    "late messages for one variable": (
        solve({"x": ASYNC, "y": RING, "z": RING}, AHEAD), "for each variable", ""),
    # methods inside others
    "masks on what is not composed": (
        lambda: privacy.masked(LOOPS, 1.0), "not just a direction times", "Mask|Apply"),
    "masks on a wrapped method": (
        lambda: privacy.masked(decibo.minibatch(FIXED), 1.0), "not just a direction times",
        "Mask|Apply",
    ),
    "masks on automatic steps": (
        lambda: privacy.masked(AUTOMATIC, 1.0), "ahead_exact", "alpha and gamma"),
    "masks on gossip": (
        lambda: privacy.masked(AHEAD, 1.0), "balanced by its neighbours", "exact_diffusion"),
    "steps alone, automatic": (
        lambda: decibo.local_steps(AUTOMATIC, 2), "finds its step sizes", "alpha and gamma"),
    "steps alone, sums of messages": (
        lambda: decibo.local_steps(PACKED, 2), "keeps sums", "local_steps"),
    "an estimator on what is not composed": (
        lambda: decibo.with_estimator(SOLO, estimator.saga()), "not just a direction times",
        r"minibatch\(method\)|composed",
    ),
    "two estimators": (
        lambda: decibo.with_estimator(SAGA, estimator.saga()), "saga", "anew|composed"),
    "EXTRA with steps of one's own": (
        lambda: decibo.compose(direction.single(), consensus.extra(), x=rule.adam(0.1), y=0.1),
        "same multiple", "tracking",
    ),
    "a proximal map with steps of its own": (
        lambda: decibo.compose(direction.single(), consensus.tracking(), x=rule.adam(0.1), y=0.1,
                               prox={"x": prox.ball(1.0)}),
        "same multiple", "box",
    ),
    "a joint rule for other variables": (
        lambda: decibo.compose(direction.single(), consensus.tracking(),
                               rule=rule.tuning_free()), "for the variables", "implicit"),
    "momentum without steps": (
        lambda: decibo.ahead_exact(momentum=0.9), "momentum", "alpha and gamma"),
    "matched steps with a rule": (
        lambda: decibo.ahead(alpha=0.1, gamma=rule.adam(0.1), lam=50.0), "matched", "beta"),
    # what is asked besides
    "messages without waiting": (
        lambda: privacy.messages(PROBLEM, ASYNC, FREE), "do not wait|every message once|lockstep",
        ""),
    "messages of automatic steps": (
        lambda: privacy.messages(PROBLEM, RING, AUTOMATIC), "finds its step sizes",
        "alpha and gamma"),
    "messages from a loop": (
        lambda: privacy.messages(PROBLEM, RING, in_a_loop()), "in a loop of its own", ""),
    "a sweep of a stream": (
        lambda: decibo.sweep(STREAM, RING, FIXED, seeds=2), "stream", "decibo.solve"),
    "a sweep of what does not fit": (
        lambda: decibo.sweep(PROBLEM, DIRECTED, FIXED, seeds=2), "needs symmetric", "fab"),
    "repeats of what does not fit": (
        lambda: decibo.repeat(PROBLEM, DIRECTED, FIXED, seeds=2), "needs symmetric", "fab"),
    "a target that nobody records": (solve(until={"here": 1.0}), "until names", "measures"),
    # sites
    "sites on a directed network": (
        job(decibo.methods.fab(alpha=0.1, beta=0.1, gamma=0.1, lam=50.0), DIRECTED),
        "directed|symmetric", "undirected"),
    "sites with a network for each variable": (job(FIXED, EACH), "one network for all variables", "one undirected"),
    "sites on a simulation": (job(FREE, ASYNC), "A site needs all agents in lockstep", "agents that wait"),
    "sites with a stream": (
        job(decibo.minibatch(FIXED), problem=STREAM), "stream", ""),
    "sites without waiting, needs lockstep": (free(FIXED), "both ends of a link", "ahead_free"),
    "sites without waiting, masks": (free(privacy.masked(FREE, 3.0)), "masks|cancel", "lockstep"),
    "sites without waiting, changing links": (free(FREE, FAILING), "undirected|links", ""),
    "sites without waiting, secure sums": (free(FREE, COMPLETE, secure_sums=True),
                                           "A secure sum needs all .* a site without waiting", "lockstep"),
    "rest, a method that cannot tell": (
        free(single(consensus.dgd()), rest=1e-8), "cannot tell whether it is at rest", "rest"),
    "rest in lockstep": (job(rest=1e-8), 'rest is for mode = "free"', ""),
    "pace in lockstep": (job(pace=1.0), 'pace is for mode = "free"', ""),
    "several messages without waiting": (
        lambda: prepare(free(single({"x": consensus.robust_tracking(), "y": consensus.dgd()}))(),
                        "north", None),
        "sends one message in each step", "one consensus strategy",
    ),
    "secure sums, automatic": (summed(AUTOMATIC), "step sizes", "alpha and gamma"),
    "secure sums, changing links": (
        summed(FIXED, networks.failing(COMPLETE, 0.1)), "A secure sum needs", "fixed"),
    "secure sums, several rounds": (
        summed(FIXED, networks.chebyshev(COMPLETE, 2)), "A secure sum needs", "fixed"),
    "secure sums, neighbours without links": (summed(FIXED, RING), "no links among them", "masks"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_work_is_refused_in_a_sentence_before_any_work_starts(what, monkeypatch):
    for work in ("begin", "advance"):
        monkeypatch.setattr(f"decibo.run.loop.{work}", lambda *_, **__: pytest.fail("it has begun"))
    call, says, remedy = REFUSED[what]
    with pytest.raises(decibo.InputError, match=says) as caught:
        call()
    error = caught.value
    assert error.message.endswith(".")
    assert "\n" not in error.message
    if remedy:
        assert re.search(remedy, error.remedy), error.remedy


def test_agents_that_do_not_wait_are_on_one_device(monkeypatch):
    monkeypatch.setattr("decibo.run.solve.place_agents", lambda *_: "several devices")
    with pytest.raises(decibo.InputError, match=r"device.* devices=1"):
        decibo.solve(PROBLEM, ASYNC, FREE, steps=2, devices=2)
