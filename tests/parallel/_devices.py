"""Run in a process of its own with eight devices: compares them with one, and reads the compiled step.

    python tests/parallel/_devices.py

One method of each kind, few steps; tests/parallel/_same.py does all of them, on processes too.
"""

from __future__ import annotations

import json
import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"

import jax

jax.config.update("jax_enable_x64", True)

import _cases as cases  # noqa: E402
import numpy as np  # noqa: E402

import decibo  # noqa: E402
from decibo.execute import loop  # noqa: E402
from decibo.execute.run import begin  # noqa: E402
from decibo.execute.solve import prepare  # noqa: E402
from decibo.parallel.collectives import across  # noqa: E402
from decibo.parallel.placement import SPLIT, place_agents  # noqa: E402

STEPS = 60


def difference(one: dict, two: dict) -> float:
    return max(float(np.abs(one[key] - two[key]).max()) for key in one)


def compiled_step(method: decibo.Algorithm, network: decibo.Network) -> str:
    """The text of one step as it is run, eight devices."""
    placement = place_agents(network.agents)
    setup = prepare(cases.problem("ahead"), network, method, steps=10, every=10, placement=placement)
    one = lambda inputs, state: loop.step(setup.program, inputs, state, np.int32(0))
    spread = across(placement, one, (loop.INPUTS, SPLIT), SPLIT)
    return jax.jit(spread).lower(setup.inputs, begin(setup).agents).compile().as_text()


def main() -> None:
    assert jax.device_count() == 8
    found = {
        f"{name} {net}": difference(*(cases.run(name, net, STEPS, smooth=True, devices=n) for n in (1, 8)))
        for name, net in cases.cases(cases.FEW, everywhere=False)
    }
    more = {
        "failing links": decibo.networks.failing(decibo.ring(12), 0.3),
        "sleeping agents": decibo.networks.sleeping(decibo.networks.torus(3, 4), 0.3),
        "in turn": decibo.networks.periodic([decibo.ring(12), decibo.networks.star(12)]),
        "large": decibo.networks.random_regular(200, 4, seed=0),
        "hub": decibo.networks.star(200),
        "chebyshev": decibo.networks.chebyshev(decibo.ring(12), 3),
    }
    problems = {12: cases.problem("ahead"), 200: decibo.problems.quadratic(200, seed=1)}
    for name, network in more.items():
        # The exact reference is a program of its own: once is enough.
        options = {"steps": 50, "measures": ["all"] if name == "in turn" else None, "progress": False}
        both = [
            decibo.solve(problems[network.agents], network, cases.method("sldbo"), devices=n, **options) for n in (1, 8)
        ]
        found[name] = max(
            float(np.abs(np.asarray(getattr(both[0].agents, v)) - np.asarray(getattr(both[1].agents, v))).max())
            for v in "xy"
        )
        found[f"{name}, measures"] = max(
            float(np.nanmax(np.abs(both[0].history[key] - both[1].history[key]))) for key in both[0].history
        )
    uneven = [
        decibo.solve(decibo.problems.quadratic(10), decibo.ring(10), cases.method("ahead"), steps=50, devices=n)
        for n in (1, 4)
    ]
    found["10 agents on 4 devices"] = float(
        np.abs(np.asarray(uneven[0].agents.x) - np.asarray(uneven[1].agents.x)).max()
    )
    chosen = [decibo.solve(problems[12], decibo.ring(12), steps=400, devices=n, progress=False) for n in (1, 8)]
    found["automatic step sizes"] = float(np.abs(np.asarray(chosen[0].agents.x) - np.asarray(chosen[1].agents.x)).max())
    try:
        decibo.solve(
            problems[12], decibo.ring(12), cases.method("ahead"), steps=2, measures=[lambda s: s.data["F"].sum()]
        )
        refused = "nothing"
    except decibo.InputError as error:
        refused = str(error)
    texts = {net: compiled_step(cases.method("ahead"), network) for net, network in cases.networks().items()}
    words = ("collective-permute", "all-gather", "all-reduce", "all-to-all")
    counts = {net: {word: text.count(word) for word in words} for net, text in texts.items()}
    print(json.dumps({"differences": found, "compiled": counts, "refused": refused}))


if __name__ == "__main__":
    main()
