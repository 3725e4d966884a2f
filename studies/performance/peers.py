"""One level only: DGD and gradient tracking of decent-bench and disropt against ours, same problem,
same ring.

    python -m studies.performance.peers [--quick]

Heterogeneous quadratics of 50 numbers. decent-bench simulates ten agents in one process, as we do.
disropt has one MPI process for each agent: four of them, which is more than two cores, and part of
how it works. Starting processes and compilation are not counted. What is not installed is skipped.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from studies.performance.timing import Row, interleaved, per_step, ratio, run_alone

GROUP = "peers"
SIZE = 50
STEP = 0.05
PROCESSES = 4


def matrices(m: int) -> tuple[np.ndarray, np.ndarray]:
    """A_i and b_i of f_i(x) = x'A_i x/2 + b_i'x."""
    random = np.random.default_rng(0)
    bases = np.linalg.qr(random.normal(size=(m, SIZE, SIZE)))[0]
    values = random.uniform(0.5, 2.0, size=(m, 1, SIZE))
    return (bases * values) @ np.swapaxes(bases, 1, 2), random.normal(size=(m, SIZE))


def objective(x, d):
    return 0.5 * x @ d["A"] @ x + d["b"] @ x


def ours(m: int, name: str, steps: int) -> Callable[[], np.ndarray]:
    import decibo
    from decibo import methods

    A, b = matrices(m)
    problem = decibo.problems.single_level(objective, {"A": A, "b": b}, jnp.zeros(SIZE))
    method = methods.dgd(alpha=STEP) if name == "DGD" else methods.gradient_tracking(alpha=STEP)
    options = {"steps": steps, "every": steps, "measures": ["outer"], "progress": False}
    return lambda: np.asarray(decibo.solve(problem, decibo.ring(m), method, **options).agents.x)


def decent_bench(m: int, name: str, steps: int) -> Callable[[], np.ndarray]:
    import networkx
    from decent_array import interoperability as iop
    from decent_bench.agents import Agent
    from decent_bench.algorithms.p2p import DGD, SimpleGT
    from decent_bench.costs import QuadraticCost
    from decent_bench.networks import P2PNetwork

    iop.set_backend("numpy")
    A, b = matrices(m)

    def run() -> np.ndarray:
        costs = [QuadraticCost(iop.from_numpy(A[i]), iop.from_numpy(b[i])) for i in range(m)]
        network = P2PNetwork(
            networkx.cycle_graph(m), [Agent(cost, state_snapshot_period=10**9) for cost in costs]
        )
        method = (DGD if name == "DGD" else SimpleGT)(step_size=STEP)
        method.run(network, steps)
        return np.stack([iop.to_numpy(agent.x) for agent in network.agents()])

    return run


def with_decent_bench(quick: bool) -> Iterator[Row]:
    m = 10
    few = 20 if quick else 200
    many = 2000 if quick else 20_000
    for name in ("DGD", "gradient tracking"):
        what = f"decent-bench / decibo, {name}, {m} agents, a step"
        if not importlib.util.find_spec("decent_bench"):
            yield Row(GROUP, what, None, note="skipped: decent-bench is not installed")
            continue
        theirs = decent_bench(m, name, few)
        if name == "DGD":  # their gradient tracking is another one, with one exchange
            np.testing.assert_allclose(theirs(), ours(m, name, few)(), atol=1e-4)
        calls = {"theirs": theirs, "long": ours(m, name, many), "short": ours(m, name, 1)}
        times = interleaved(calls, 3 if quick else 7)
        mine = per_step(times["long"], times["short"], many)
        yield ratio(GROUP, what, [seconds / few for seconds in times["theirs"]], mine)


def disropt_agent(name: str, steps: int) -> None:
    """One MPI process: one agent of disropt; the first prints its seconds a step and its x."""
    from disropt.agents import Agent
    from disropt.algorithms import GradientTracking, SubgradientMethod
    from disropt.functions import QuadraticForm, Variable
    from disropt.problems import Problem
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    m = world.Get_size()
    i = world.Get_rank()
    A, b = matrices(m)
    near = [(i - 1) % m, (i + 1) % m]
    agent = Agent(in_neighbors=near, out_neighbors=near, in_weights=dict.fromkeys(near, 1 / 3))
    function = QuadraticForm(Variable(SIZE), A[i] / 2, b[i][:, None])
    agent.set_problem(Problem(function, force_general_problem=True))
    kind = SubgradientMethod if name == "DGD" else GradientTracking
    method = kind(agent=agent, initial_condition=np.zeros((SIZE, 1)))
    world.Barrier()
    begun = time.perf_counter()
    method.run(iterations=steps, stepsize=STEP)
    world.Barrier()
    if i == 0:
        print(
            json.dumps(
                {"seconds": (time.perf_counter() - begun) / steps, "x": method.x.ravel().tolist()}
            )
        )


def disropt(name: str, steps: int) -> dict[str, Any]:
    launcher = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:/usr/bin") or "mpiexec"
    program = [sys.executable, "-m", "studies.performance.peers", "--part", name, str(steps)]
    command = [launcher, "-n", str(PROCESSES), *program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def with_disropt(quick: bool) -> Iterator[Row]:
    few = 20 if quick else 200
    many = 2000 if quick else 20_000
    for name in ("DGD", "gradient tracking"):
        what = f"disropt / decibo, {name}, {PROCESSES} agents, a step"
        if not importlib.util.find_spec("disropt"):
            yield Row(GROUP, what, None, note="skipped: disropt is not installed")
            continue
        theirs = []
        mine = []
        for _ in range(2 if quick else 5):
            theirs.append(disropt(name, few))
            times = interleaved(
                {"long": ours(PROCESSES, name, many), "short": ours(PROCESSES, name, 1)}, 1
            )
            mine += per_step(times["long"], times["short"], many)
        if name != "DGD":  # theirs descends at the mixed point
            np.testing.assert_allclose(theirs[0]["x"], ours(PROCESSES, name, few)()[0], atol=1e-4)
        yield ratio(GROUP, what, [each["seconds"] for each in theirs], mine)


def rows(quick: bool) -> Iterator[Row]:
    yield from with_decent_bench(quick)
    yield from with_disropt(quick)


if __name__ == "__main__":
    run_alone(rows, disropt_agent)
