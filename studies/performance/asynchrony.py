"""What it is worth not to wait: simulated time until every agent is within 1e-6 of x*, one agent
ten times slower.

    python -m studies.performance.asynchrony [--quick]

A tick is a step of a fast agent with its messages; agent 0 needs ten. In lockstep a round takes as
long as the slowest agent, ten ticks, whoever waits for whom: after a few rounds the delay has
reached everybody. Without waiting a run simply counts ticks.

in lockstep   ahead_exact, and the same penalty with atc_tracking
not waiting   ahead_free, and the same with relay=True, where the slow agent talks while it computes

Steps are the best of one grid of 10 alphas and 6 gammas, by the slower of two seeds; the times are
those of five other seeds, each with a problem, a network and late messages of its own. Both sides
have two methods and the same grid, and the better one on the seeds for tuning counts. Times without
waiting are rounded up to 10 ticks.

random 10     random regular networks of 10 agents with 4 neighbours each
complete 4    4 agents, all connected: one round agrees exactly, and the slow agent holds a quarter
              of what is needed

The last rows are seconds on this machine: what simulating a tick costs, over a step in lockstep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import decibo
from decibo import consensus, direction
from studies.performance.timing import Row, run_alone

NEAR = 1e-6
SLOW = 10  # ticks of the slow agent's step
TUNING = (100, 101)
JUDGING = (0, 1, 2, 3, 4)
GRID = {
    "alpha": [float(a) for a in np.geomspace(0.02, 1.2, 10)],
    "gamma": [float(g) for g in np.geomspace(0.08, 0.9, 6)],
}
LAM = 20.0


class Way(NamedTuple):
    """How agents work together: a method, the network made of another, ticks of a step, and the
    most ticks tried."""

    method: Callable[[], decibo.Algorithm]
    network: Callable[[decibo.Network], decibo.Network]
    ticks: int
    most: int


@decibo.method
def tracked(*, alpha: decibo.schedules.Rate, gamma: decibo.schedules.Rate) -> decibo.Algorithm:
    """The penalty of ahead_exact with gradient tracking."""
    return decibo.compose(
        direction.symmetric_penalty(LAM), consensus.atc_tracking(), x=alpha, y=gamma, z=gamma
    )


def worst(s: decibo.Snapshot) -> jax.Array:
    """The largest distance of an agent from the solution."""
    return jnp.max(jnp.linalg.norm(s.rows["x"] - s.known["x"], axis=1))


def not_waiting(relay: bool) -> Callable[[decibo.Network], decibo.Network]:
    """The network with a slow agent, and with messages that take one or two ticks."""
    return lambda network: decibo.networks.asynchronous(
        network, speeds={0: 1 / SLOW}, delay=2, relay=relay
    )


free = lambda: decibo.methods.ahead_free(alpha=1.0, gamma=1.0, lam=LAM)
LOCKSTEP = {
    "ahead_exact": Way(
        lambda: decibo.ahead_exact(alpha=1.0, gamma=1.0, lam=LAM),
        lambda network: network,
        SLOW,
        4000,
    ),
    "atc_tracking": Way(lambda: tracked(alpha=1.0, gamma=1.0), lambda network: network, SLOW, 4000),
}
FREE = {
    "ahead_free": Way(free, not_waiting(relay=False), 1, 4000),
    "ahead_free, relay": Way(free, not_waiting(relay=True), 1, 4000),
}
PLACES = {
    "random 10": lambda seed: decibo.networks.random_regular(10, 4, seed=seed),
    "complete 4": lambda seed: decibo.complete(4),
}


def times(way: Way, place: str, seed: int, grid: dict[str, list[float]]) -> np.ndarray:
    """For every setting the tick from which on all agents are near; infinite if there is none."""
    network = PLACES[place](seed)
    problem = decibo.problems.quadratic(network.agents, seed=seed)
    every = max(1, 10 // way.ticks)
    runs = decibo.sweep(
        problem,
        way.network(network),
        way.method(),
        grid,
        seeds=[seed],
        steps=way.most // way.ticks,
        every=every,
        measures=[worst],
        progress=False,
    )
    distances = np.nan_to_num(runs.history["worst"], nan=np.inf)
    far = distances > NEAR
    last = np.where(far.any(axis=1), far.shape[1] - 1 - far[:, ::-1].argmax(axis=1), -1)
    after = np.append(np.asarray(runs.history["step"], float) * way.ticks, np.inf)
    return after[last + 1]


def tuned(ways: dict[str, Way], place: str) -> tuple[str, dict[str, float], float]:
    """The way and the setting whose slower seed for tuning is fastest."""
    found = []
    pairs = [{"alpha": a, "gamma": g} for a in GRID["alpha"] for g in GRID["gamma"]]
    for name, way in ways.items():
        slower = np.max([times(way, place, seed, GRID) for seed in TUNING], axis=0)
        found.append((float(slower.min()), name, pairs[int(slower.argmin())]))
    best = min(found, key=lambda entry: entry[0])
    return best[1], best[2], best[0]


def judged(ways: dict[str, Way], place: str, seeds: tuple[int, ...]) -> tuple[np.ndarray, str]:
    """The times of the tuned way on the seeds for judging, with its settings in words."""
    name, settings, _ = tuned(ways, place)
    grid = {key: [value] for key, value in settings.items()}
    ticks = np.array([times(ways[name], place, seed, grid)[0] for seed in seeds])
    return (
        ticks,
        (
            f"{name}, alpha {settings['alpha']:.3g}, gamma {settings['gamma']:.3g}:"
            f" {ticks.astype(int).tolist()}"
        ),
    )


def rows(quick: bool) -> Iterator[Row]:
    """Both places: the time of each side, and the gain."""
    seeds = JUDGING[:2] if quick else JUDGING
    with jax.enable_x64(True):
        for place in PLACES:
            waiting, how = judged(LOCKSTEP, place, seeds)
            yield Row(
                "asynchrony", f"{place}, in lockstep", float(np.median(waiting)), "ticks", note=how
            )
            going, how = judged(FREE, place, seeds)
            yield Row(
                "asynchrony", f"{place}, not waiting", float(np.median(going)), "ticks", note=how
            )
            gains = waiting / going
            yield Row(
                "asynchrony",
                f"{place}, times faster",
                float(np.median(gains)),
                low=float(gains.min()),
                high=float(gains.max()),
                target=">= 3" if place == "random 10" else "",
            )
        for agents in (10, 100, 1000):
            yield simulated(agents, 200 if quick else 2000)


def simulated(agents: int, steps: int) -> Row:
    """What a tick with delays and losses costs, over a step in lockstep."""
    problem = decibo.problems.quadratic(agents)
    network = decibo.networks.random_regular(agents, 4, seed=0)
    late = decibo.networks.asynchronous(network, delay=3, loss=0.3)
    method = decibo.methods.ahead_free(alpha=0.05, gamma=0.1)
    each: dict[str, list[float]] = {"lockstep": [], "ticks": []}
    for _ in range(5):
        for name, one in (("lockstep", network), ("ticks", late)):
            run = decibo.solve(
                problem, one, method, steps=steps, every=steps, measures=["outer"], progress=False
            )
            each[name].append(run.cost.seconds / steps * 1e6)
    step, tick = (float(np.median(values)) for values in each.values())
    note = f"{tick:.0f} over {step:.0f} microseconds"
    return Row(
        "asynchrony", f"a tick over a step in lockstep, {agents} agents", tick / step, note=note
    )


if __name__ == "__main__":
    run_alone(rows)
