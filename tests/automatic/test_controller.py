"""A controller of one's own: what it returns is what the run continues from, and what a checkpoint restores."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np
import pytest

import decibo
from decibo.automatic.controller import RunState

PROBLEM = decibo.problems.quadratic(6, seed=2)
RING = decibo.ring(6)
METHOD = decibo.ahead(alpha=0.02, beta=0.01, gamma=0.05, lam=10.0)


class Memory(NamedTuple):
    changes: int
    points: np.ndarray  # grows from update to update


@dataclass(frozen=True)
class Halving:
    """Halves alpha at every update, and returns to the start with a smaller gamma when numbers overflow."""

    every: int = 30
    restarts: int = 1

    @property
    def settings(self):
        return {"alpha": None, "gamma": None}

    def init(self, agents, run, steps):
        assert steps == 100
        assert agents.direction.variables == ("x", "y", "z")
        return run._replace(settings={"alpha": 0.04, "gamma": 0.05}, controller=Memory(0, np.zeros(0)))

    def interval(self, run):
        return self.every

    def update(self, agents, run):
        memory = Memory(run.controller.changes + 1, np.append(run.controller.points, run.step))
        return run._replace(settings=run.settings | {"alpha": run.settings["alpha"] / 2}, controller=memory)

    def on_nonfinite(self, agents, run):
        return None

    def troubled(self, run):
        return False

    def summary(self, run):
        return f"{run.controller.changes} changes, at {run.controller.points.tolist()}."


def controlled(controller):
    """A named method that carries this controller."""

    def factory(**settings):
        return replace(METHOD.replace(**settings), factory=factory, controller=controller)

    return factory()


def solve(controller, steps=100, **options):
    return decibo.solve(PROBLEM, RING, controlled(controller), steps=steps, progress=False, every=10, **options)


def test_a_controller_changes_settings_between_chunks():
    solution = solve(Halving())
    assert solution.message == "All 100 steps done. 4 changes, at [0.0, 30.0, 60.0, 90.0]."
    assert solution.method.settings["alpha"] == 0.04 / 16
    by_hand = lambda k: 0.04 / 2 ** (k // 30 + 1)
    alone = decibo.solve(PROBLEM, RING, METHOD.replace(alpha=by_hand), steps=100, progress=False, every=10)
    np.testing.assert_allclose(solution.x, alone.x, rtol=1e-12)
    np.testing.assert_allclose(solution.history["outer"], alone.history["outer"], rtol=1e-12)


def test_a_checkpoint_holds_the_controllers_state(tmp_path):
    def stop(step, steps, latest):
        if step >= 70:
            raise KeyboardInterrupt

    checkpoint = decibo.Checkpoints(tmp_path, every=20)
    first = decibo.solve(
        PROBLEM, RING, controlled(Halving()), steps=100, every=10, progress=stop, checkpoint=checkpoint
    )
    assert first.status == "interrupted"
    resumed = solve(Halving(), checkpoint=replace(checkpoint, resume=True))
    whole = solve(Halving())
    assert resumed.message == whole.message
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), vars(resumed.agents), vars(whole.agents)))
    assert all((resumed.history[name] == whole.history[name]).all() for name in whole.history)


@dataclass(frozen=True)
class Rescue(Halving):
    """Starts with a gamma that overflows."""

    def init(self, agents, run, steps):
        start = super().init(agents, run, steps)
        return start._replace(settings={"alpha": 0.02, "gamma": 1e150}, controller=(run.agents, 0))

    def update(self, agents, run):
        return run

    def on_nonfinite(self, agents, run):
        start, failures = run.controller
        if failures == self.restarts:
            return None
        return run._replace(agents=start, settings={"alpha": 0.02, "gamma": 0.05}, controller=(start, failures + 1))

    def summary(self, run):
        return f"{run.controller[1]} restarts."


def test_a_controller_may_return_to_an_earlier_state():
    solution = solve(Rescue())
    assert solution.status == "done"
    assert "1 restarts" in solution.message
    assert all(np.isfinite(row).all() for row in solution.history.values())


def test_a_controller_that_gives_up_ends_the_run():
    solution = solve(Rescue(restarts=0))
    assert solution.status == "diverged"
    assert solution.steps == 0 or np.isfinite(solution.x).all()


def test_a_controller_needs_a_direction():
    method = replace(controlled(Halving()), direction=None)
    with pytest.raises(decibo.InputError, match="needs a method with a direction"):
        decibo.solve(PROBLEM, RING, method, steps=100)


@pytest.mark.parametrize("method", [METHOD, decibo.ahead_exact()], ids=repr)
def test_the_state_of_a_run_is_a_pytree(method):
    from decibo.execute.run import begin
    from decibo.execute.solve import prepare

    run = begin(prepare(PROBLEM, RING, method, steps=100, every=10))
    leaves, structure = jax.tree.flatten(run)
    again = jax.tree.unflatten(structure, leaves)
    assert isinstance(again, RunState)
    rows = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
    assert all(leaf.shape[0] == 6 for leaf in rows)  # every JAX array has an axis of agents
    assert {type(leaf) for leaf in leaves if not isinstance(leaf, jax.Array)} <= {int, float, np.ndarray}
