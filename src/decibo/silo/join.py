"""join: this site's part of a job, from its first step or from its last checkpoint to the end."""

from __future__ import annotations

from pathlib import Path

from decibo.errors import InputError
from decibo.pytree import Tree
from decibo.run.progress import Report
from decibo.run.run import watched
from decibo.run.solution import Solution, Status
from decibo.silo.asynchronous import FreeRunner
from decibo.silo.identity import Home
from decibo.silo.job import Job
from decibo.silo.kept import Kept
from decibo.silo.lockstep import Runner
from decibo.silo.site_run import Run, Say, prepare, with_data
from decibo.silo.tls import TlsWire
from decibo.silo.wire import Wire
from decibo.validate import integer

__all__ = ["Run", "join", "prepare", "with_data"]


def join(
    job: Job,
    *,
    site: str,
    data: Tree,
    home: str | Path | None = None,
    folder: str | Path | None = None,
    wire: Wire | None = None,
    every: int | None = None,
    progress: bool | Report | None = None,
    say: Say | None = None,
) -> Solution:
    """Take part in a job as this site, and return this site's solution; the same call continues
    after a crash.

    data       this site's own, without an axis of agents; None for what the job's problem has, in a
               rehearsal
    home       the folder that `decibo site init` made, with the key; ~/.decibo/site by default
    folder     where this run keeps its checkpoints; in the home folder by default
    wire       what carries the messages, TLS by default
    every      the number of steps between two records of this site's own objectives; about a
               hundred by default
    progress   as for `solve`
    say        gets the lines of the log: who connected, who was refused and why

    The solution holds this site's x and y, which are those of all sites to the precision that the
    run has reached.
    """
    if not isinstance(job, Job):
        raise InputError(
            f"job must be a decibo.silo.Job, but it is {job!r:.60}.",
            "Use decibo.silo.read_job(path).",
        )
    run = prepare(job, site, data)
    say = say or (lambda line: None)
    every = max(1, job.steps // 100) if every is None else integer("every", every)
    own = Home.at(home) if wire is None or folder is None else None
    place = Path(folder) if folder is not None else own.run(job) if own is not None else Path()
    kept = Kept(place, run.agent.number, run.rows, job.terms | {"site": site})
    with watched(progress) as report, kept.held():
        known = kept.restore(run.shape)
        if known is not None and kept.finished and (known.step == job.steps or job.is_free):
            return run.solution(known, Status.done, "This run was complete already.", 0.0)
        if wire is None:
            assert own is not None
            wire = TlsWire(job, site, own.credentials(job.sites[job.number(site)]), say, own.listen)
        runner = FreeRunner if job.is_free else Runner
        return runner(run, kept, every, report, say).run(run.post(wire, say), known)
