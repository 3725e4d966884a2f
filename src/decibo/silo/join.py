"""join: this site's part of a job, from its first step or from its last checkpoint to the end."""

from __future__ import annotations

from pathlib import Path

from decibo.errors import InputError
from decibo.pytree import Tree
from decibo.run.progress import Report
from decibo.run.run import watched
from decibo.run.solution import Solution, Status
from decibo.silo.asynchronous import AsyncRunner
from decibo.silo.checkpoints import SiteCheckpoints, private
from decibo.silo.identity import Identity
from decibo.silo.job import Job
from decibo.silo.lockstep import LockstepRunner
from decibo.silo.site_run import prepare
from decibo.silo.tls import TlsWire
from decibo.silo.wire import Log, Wire
from decibo.validate import integer


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
    log: Log | None = None,
) -> Solution:
    """Take part in a job as this site, and return this site's solution; the same call continues
    after a crash.

    data       this site's own, without an axis of agents; None for what the job's problem has, in a
               rehearsal
    home       the folder that `decibo site init` made, with the key; ~/.decibo/site by default
    folder     where this run keeps its checkpoints; in the home folder by default
    wire       what carries the messages, TLS by default
    every      the number of steps between two records of this site's own objectives; about a
               hundred records by default
    progress   as for `solve`
    log        gets the lines of the log: who connected, who was refused and why

    The solution holds this site's x and y, which are those of all sites to the precision that the
    run has reached.
    """
    if not isinstance(job, Job):
        raise InputError(
            f"job must be a decibo.silo.Job, but it is {job!r:.60}.",
            "Use decibo.silo.read_job(path).",
        )
    run = prepare(job, site, data)
    log = log or (lambda line: None)
    every = max(1, job.steps // 100) if every is None else integer("every", every)
    own = Identity.at(home) if wire is None or folder is None else None
    place = Path(folder) if folder is not None else own.run(job.digest) if own else Path()
    checkpoints = SiteCheckpoints(place, run.agent.number, run.rows, job.terms | {"site": site})
    with watched(progress) as report, private(place):
        state = checkpoints.restore(run.shape)
        if (
            state is not None
            and checkpoints.finished
            and (state.step == job.steps or job.is_asynchronous)
        ):
            return run.solution(state, Status.done, "This run was complete already.", 0.0)
        if wire is None:
            assert own is not None
            credentials = own.credentials(job.sites[job.number(site)])
            wire = TlsWire(job.consortium, site, credentials, log, own.listen)
        # A site that starts again repeats its messages from the checkpoint, bit for bit, so that
        # neighbours one exchange ahead or behind need not know that it was gone (mailbox.py, (6)).
        runner = AsyncRunner if job.is_asynchronous else LockstepRunner
        return runner(run, checkpoints, every, report, log).run(run.mailbox(wire, log), state)
