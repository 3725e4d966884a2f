"""What works with what: the table of the page is computed from what methods need and what networks,
problems and runtimes give; and what adding a method, a network or a runtime touches.

`python tests/test_capabilities.py` updates the page.
"""

import ast
import inspect
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import jax
import numpy as np
import pytest

import decibo
from decibo import consensus, direction, networks
from decibo.algorithm.algorithm import CATALOG, Algorithm, method
from decibo.capabilities import (
    FREE_SITES,
    ON_NETWORK,
    ONE_DEVICE,
    SEVERAL_DEVICES,
    SITES,
    Need,
    Runtime,
    check,
    require,
)
from decibo.network.mixing import How, Mixing
from decibo.network.network import Network

pytestmark = pytest.mark.quick

PAGE = Path(__file__).parents[1] / "docs/how-to/method.md"
SOURCE = Path(decibo.__file__).parent
RING = decibo.ring(4)
PROBLEM = decibo.problems.quadratic(agents=4)
EACH = networks.each({"x": RING, "y": decibo.complete(4), "z": RING})
COLUMNS = {
    "many agents": (RING, ONE_DEVICE),
    "one-way links": (networks.directed_ring(4), ONE_DEVICE),
    "failing links": (networks.failing(RING, 0.1), ONE_DEVICE),
    "late messages": (networks.asynchronous(RING, delay=2), ONE_DEVICE),
    "per variable": (EACH, ONE_DEVICE),
    "devices": (RING, SEVERAL_DEVICES),
    "sites": (RING, SITES),
    "free sites": (RING, FREE_SITES),
}
FUSED, STREAM = "fused kernels", "streams"


def works(method: Algorithm, network: decibo.Network, runtime: Runtime) -> bool:
    try:
        check(runtime, PROBLEM, network)
        require(method.name, method.needs & ON_NETWORK, network.gives, network)
        require(method.name, method.needs & runtime.lacks, (), runtime.name)
    except decibo.InputError:
        return False
    return True


def row_of(method: Algorithm) -> list[bool]:
    drawn = method if Need.MINIBATCHES in method.needs else decibo.minibatch(method)
    streamed = not drawn.needs & {Need.FULL_DATA, Need.NUMBERED_BATCHES}
    return [
        *(works(method, *where) for where in COLUMNS.values()),
        Need.SECOND_DERIVATIVES not in method.needs,
        streamed,
    ]


def table() -> str:
    """Methods that work with the same things share a row, which says what they do not work with."""
    rows: dict[tuple, list[str]] = {}
    for name, factory in CATALOG.items():
        parameters = inspect.signature(factory).parameters.values()
        wanted = {each.name: 0.1 for each in parameters if each.default is each.empty}
        missing = zip([*COLUMNS, FUSED, STREAM], row_of(factory(**wanted)), strict=True)
        without = tuple(name for name, works in missing if not works)
        without = without[:1] if "many agents" in without else without
        rows.setdefault(without, []).append(f"`{name}`")
    lines = [f"| {', '.join(names)} | {', '.join(row)} |\n" for row, names in rows.items()]
    return "".join(["| methods | not with |\n|---|---|\n", *lines])


def test_the_page_has_the_table():
    assert table() in PAGE.read_text(), "run python tests/test_capabilities.py"


def test_every_need_is_a_noun_with_a_remedy_and_somebody_gives_it():
    alone, batches = decibo.complete(1), decibo.data.Batches(1, take=lambda d, j: d)
    drawn = decibo.Problem(
        PROBLEM.outer, PROBLEM.inner, PROBLEM.data, PROBLEM.x0, PROBLEM.y0, sample=batches
    )
    assert alone.gives | drawn.gives == set(Need)
    for need in Need:
        assert need.what[0].islower()
        assert need.remedy.endswith(".")


# What adding something touches: each of these is complete as it stands here.


def test_a_composed_method_is_one_function():
    @method
    def mine(*, alpha: decibo.schedules.Rate, lam: float = 10.0) -> Algorithm:
        """A method of one's own."""
        along = direction.penalty(lam)
        return decibo.compose(along, consensus.tracking(), x=alpha, y=alpha, z=alpha)

    assert mine(alpha=0.1).needs == {Need.SYMMETRIC_WEIGHTS, Need.LOCKSTEP, Need.FULL_DATA}
    assert decibo.solve(PROBLEM, RING, mine(alpha=0.01), steps=5).status == "done"
    with pytest.raises(decibo.InputError, match="mine is right only if both ends of a link"):
        decibo.solve(PROBLEM, networks.asynchronous(RING, delay=2), mine(alpha=0.01), steps=5)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Halved(Mixing):
    """A mixing that goes half the way."""

    inside: Mixing

    def exchange(self, S, how, k=None, key=None):
        if how is How.LARGEST:
            return self.inside.exchange(S, how, k, key)
        change = 0.5 * self.inside.exchange(S, How.DIFFERENCE, k, key)
        return change if how is How.DIFFERENCE else S + change


@dataclass(frozen=True, eq=False, repr=False)
class HalvedNetwork(Network):
    """A network of one's own around another, whose width and gap nobody knows."""

    lacks: ClassVar = frozenset({Need.NETWORK_CONSTANTS})

    def made_of(self, exchange):
        return Halved(super().made_of(exchange))


def test_a_network_wrapper_is_one_class_with_its_mixing():
    halved = HalvedNetwork(RING.weights, "halved ring")
    fixed = decibo.ahead_exact(alpha=0.05, gamma=0.1)
    ours = decibo.solve(PROBLEM, halved, fixed, steps=20)
    by_hand = decibo.from_weights((np.eye(4) + RING.W) / 2)
    np.testing.assert_allclose(ours.x, decibo.solve(PROBLEM, by_hand, fixed, steps=20).x)
    with pytest.raises(decibo.InputError, match="ahead_exact finds its step sizes itself"):
        decibo.solve(PROBLEM, halved, decibo.ahead_exact(), steps=5)


def test_a_runtime_is_its_line_and_the_module_that_checks_it():
    """Each runtime of capabilities.py is used in one other module, the one that runs there."""
    names = [
        node.targets[0].id
        for node in ast.parse((SOURCE / "capabilities.py").read_text()).body
        if isinstance(node, ast.Assign) and "Runtime(" in ast.unparse(node.value)
    ]
    texts = {
        path: path.read_text() for path in SOURCE.rglob("*.py") if path.name != "capabilities.py"
    }
    users = {
        name: [path.name for path, text in texts.items() if re.search(rf"\b{name}\b", text)]
        for name in names
        if name != "ONE_DEVICE"  # where a run takes place if nothing is said
    }
    assert set(users) >= {"SEVERAL_DEVICES", "SWEEP", "SITES", "FREE_SITES", "SECURE_SUMS"}
    assert all(len(paths) == 1 for paths in users.values()), users

    moon = Runtime("A run on the moon", frozenset({Need.FIXED_LINKS}), frozenset({Need.LOCKSTEP}))
    fixed = decibo.ahead_exact(alpha=0.05, gamma=0.1)
    with pytest.raises(decibo.InputError, match="A run on the moon needs the same links"):
        check(moon, PROBLEM, networks.failing(RING, 0.1))
    with pytest.raises(decibo.InputError, match="which a run on the moon does not offer"):
        check(fixed, PROBLEM, RING, moon)
    check(decibo.methods.ahead_free(alpha=0.1, gamma=0.1), PROBLEM, RING, moon)


if __name__ == "__main__":
    text = PAGE.read_text()
    old = re.search(r"(?m)^\| methods \| not with \|\n(\|.*\n)+", text)
    assert old is not None
    PAGE.write_text(text.replace(old[0], table()))
