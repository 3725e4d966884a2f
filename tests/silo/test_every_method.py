"""Every method of the catalogue without inner loops at three sites is the simulation; what sites
cannot run is refused before."""

import inspect

import numpy as np
import pytest

import decibo
from decibo.silo import Job, Memory, Site, join
from helpers.sites import in_threads

NAMES = ("north", "east", "south")
STEPS = 4


def made(factory):
    """The method with settings that suit a few steps."""
    parameters = inspect.signature(factory).parameters.values()
    needed = [each for each in parameters if each.default is each.empty]
    settings = {each.name: 20.0 if each.name == "lam" else 0.02 for each in needed}
    return factory(**settings)


def loops(factory):
    """Whether it mixes inside a loop, for which threads of one process wait for each other."""
    return bool({"T", "N", "K"} & set(inspect.signature(factory).parameters))


PLAIN = [name for name, factory in decibo.CATALOG.items() if not loops(factory)]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PLAIN))
def test_sites_compute_what_the_simulation_does(name, tmp_path):
    problem = decibo.problems.quadratic(agents=3)
    network = decibo.ring(3)
    method = made(decibo.CATALOG[name])
    try:
        job = Job(tuple(map(Site, NAMES)), problem, network, method, STEPS, patience=60.0)
    except decibo.InputError:
        pytest.skip("refused: for one agent, or its noise could be subtracted")
    memory = Memory()
    results = in_threads(
        lambda site: join(
            job, site=site, data=None, folder=tmp_path / site, wire=memory.wire(site)
        ),
        NAMES,
    )
    rows = np.asarray(decibo.solve(problem, network, method, steps=STEPS, measures=[]).agents.x)
    found = np.stack([np.asarray(results[site].x) for site in NAMES])
    np.testing.assert_allclose(found, rows, rtol=1e-9, atol=1e-12)
