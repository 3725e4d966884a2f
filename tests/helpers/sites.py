"""Sites that are threads of this process: they share compiled programs, and a crash is an exception."""

import threading

import numpy as np

import decibo
from decibo.silo import Job, Site, join
from decibo.silo.join import prepare

NAMES = ("north", "east", "south", "west")


def in_threads(work, names=NAMES):
    """What work(name) returns or raises, for all names at once."""
    results = {}

    def one(name):
        try:
            results[name] = work(name)
        except BaseException as error:
            results[name] = error

    threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a site does not end"
    return results


def make_job(problem, method, **options):
    defaults = {"steps": 30, "network": decibo.ring(4), "again": 0.05, "patience": 20.0, "checkpoint_every": 4}
    sites = tuple(map(Site, options.pop("sites", NAMES)))
    return Job(sites, problem, method=method, **defaults | options)


def warm(job):
    """Compile the programs of the sites once, before all of them need them at the same time."""
    run = prepare(job, NAMES[0], None)
    echo = lambda vector: np.stack([vector] * (1 + len(run.peers)))
    run.agent.step(run.agent.begin(run.first, echo), 0, echo)


def run_all(job, folder, memory, **options):
    """All sites of a job, in memory; raises what any of them raises."""
    warm(job)
    run = lambda name: join(job, site=name, data=None, folder=folder / name, wire=memory.wire(name), **options)
    results = in_threads(run)
    for result in results.values():
        if isinstance(result, BaseException):
            raise result
    return results
