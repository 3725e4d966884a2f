"""Every method of the catalogue without inner loops at three sites is the simulation; what sites
cannot run is refused before."""

import inspect

import numpy as np
import pytest

import decibo
from decibo.silo import Job, Memory, Site, join
from decibo.silo.site_run import prepare
from helpers.sites import in_threads

NAMES = ("north", "east", "south")
STEPS = 4
REFUSED = {
    **dict.fromkeys(("bome", "f2sa", "f2sa_p", "v_pbgd"), "needs a single agent"),
    **dict.fromkeys(("c2dfb", "ma_dsbo"), "exchanges messages inside a loop"),
    **dict.fromkeys(("saba", "srba"), "batches"),
}


def made(factory):
    """The method with settings that suit a few steps."""
    parameters = inspect.signature(factory).parameters.values()
    needed = [each for each in parameters if each.default is each.empty]
    known = {"lam": 20.0, "T": 2, "N": 2}
    settings = {each.name: known.get(each.name, 0.02) for each in needed}
    return factory(**settings)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(decibo.CATALOG))
def test_sites_compute_what_the_simulation_does(name, tmp_path):
    problem = decibo.problems.quadratic(agents=3)
    network = decibo.ring(3)
    method = made(decibo.CATALOG[name])
    sites = tuple(map(Site, NAMES))
    if name in REFUSED:
        with pytest.raises(decibo.InputError, match=REFUSED[name]):
            prepare(Job(sites, problem, network, method, STEPS), NAMES[0], None)
        return
    job = Job(sites, problem, network, method, STEPS, patience=60.0)
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
