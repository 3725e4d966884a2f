"""join: this site's part of a job, from its first step or from its last checkpoint to the end.

    DIR/step-00000120/    checkpoints: the state after 120 steps, the records, the messages that a
                          neighbour may have missed
    DIR/data-1-1.json     the mark of the data with which the run began (run.fingerprint)
    DIR/finished          there once all neighbours have everything: nobody needs this site any more
    DIR/status.json       where the run is, and for whom it waits
    DIR/solution.json     how the run ended at this site, and its x and y

No site sees another's folder, and only its user may read it.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import jax

from decibo.errors import InputError, LostError
from decibo.files import PRIVATE, atomic_write
from decibo.formatting import listed, to_json
from decibo.measure.measures import Measures
from decibo.parallel.signals import GracefulStop
from decibo.pytree import Tree
from decibo.run import checkpoint_files
from decibo.run.checkpoint import RunState, check_folder
from decibo.run.lock import hold
from decibo.run.observers import Callbacks, Report, reporting, saving, watched
from decibo.run.run import Ended, Plan, run
from decibo.run.solution import Solution, Status
from decibo.silo.asynchronous import AsyncStepper
from decibo.silo.collectives import Collectives
from decibo.silo.identity import Identity
from decibo.silo.job import Job
from decibo.silo.lockstep import Exchanger, LockstepStepper
from decibo.silo.mailbox import STOPPED, EndedError
from decibo.silo.network_measures import NetworkMeasures
from decibo.silo.site_run import prepare
from decibo.silo.tls import TlsWire
from decibo.silo.wire import Log, Wire
from decibo.validate import MOST_STEPS, flag, integer

FINISHED = "finished"
SOLUTION = "solution.json"
STATUS = "status.json"
PAUSE = 5.0  # seconds between two writes of the status


def join(
    job: Job,
    *,
    site: str,
    data: Tree,
    home: str | Path | None = None,
    folder: str | Path | None = None,
    wire: Wire | None = None,
    every: int | None = None,
    measures: Measures = None,
    until: Mapping[str, float] | None = None,
    callbacks: Sequence[object] = (),
    progress: bool | Report | None = None,
    log: Log | None = None,
    same_programs: bool = False,
) -> Solution:
    """Take part in a job as this site, and return this site's solution; the same call continues
    after a crash.

    data       this site's own, without an axis of agents; None for what the job's problem has, in a
               rehearsal
    home       the folder that `decibo site init` made, with the key; ~/.decibo/site by default
    folder     where this run keeps its checkpoints; in the home folder by default
    wire       what carries the messages, TLS by default
    every      the number of steps between two records; by default there are about a hundred records
    measures   what to record of this site's own data at its own point: "outer" and "inner" by
               default, functions of a snapshot of this one agent. What all sites record together is
               a matter of the job
    until      stop as converged once these measures of all sites are at or below their values, as
               {"residual": 1e-8}; all sites must pass the same, here or in the job
    callbacks  as for `solve`; when one of them ends the run, it ends at all sites, each where it is
    progress   as for `solve`
    log        gets the lines of the log: who connected, who was refused and why
    same_programs   whether you know that neighbours with other versions of decibo or JAX compute
               the same: it cannot be compared

    The solution holds this site's x and y, which are those of all sites to the precision that the
    run has reached.
    """
    if not isinstance(job, Job):
        raise InputError(
            f"job must be a decibo.silo.Job, but it is {job!r:.60}.",
            "Use decibo.silo.read_job(path).",
        )
    if jax.process_count() > 1:
        raise InputError(
            "A site is one process, but this is a run of several.", "Start it without a launcher."
        )
    job = job if until is None else replace(job, until=until)
    every = None if every is None else integer("every", every)
    if job.together and every not in (None, job.record_every):
        raise InputError(
            f"All sites record {listed(job.together)} at the same steps, every {job.record_every},"
            f" but every is {every}.",
            "Leave it out; `every` of the job is the same at all sites.",
        )
    watchers = Callbacks(callbacks)
    site_run = prepare(job, site, data, measures=measures, every=every)
    log = log or (lambda line: None)
    own = Identity.at(home) if wire is None or folder is None else None
    place = Path(folder) if folder is not None else own.run(job.digest) if own else Path()
    if wire is None:
        assert own is not None
        wire = TlsWire(job.consortium, site, own, log)
    mailbox = site_run.mailbox(wire, log, same_programs=flag("same_programs", same_programs))
    exchange = Exchanger(mailbox)
    kind = AsyncStepper if job.is_asynchronous else LockstepStepper
    stepper = kind(site_run, place, exchange)
    if job.together:
        sites = Collectives(exchange, job.network, job.names, site_run.agent.number)
        stepper.together = NetworkMeasures(site_run, sites)
    with watched(progress) as report, private(place, site) as live:
        return carry_out(stepper, watchers, report, live)[1]


@contextmanager
def private(folder: Path, site: str) -> Iterator[StatusFile]:
    """A folder that only its user may read, held by one process at a time; where the run is stands
    in a file there."""
    check_folder(folder)
    # masks and shares of secrets are in it, and a folder of the caller's choice may be 0755
    os.chmod(folder, 0o700)
    with hold(folder, own=True):
        checkpoint_files.clear(folder)
        live = StatusFile(folder, site)
        try:
            yield live
        except (LostError, InputError) as error:
            live.write("lost" if isinstance(error, LostError) else "refused", str(error))
            raise


def carry_out(
    stepper: LockstepStepper, callbacks: Callbacks, report: Report | None, live: StatusFile
) -> tuple[RunState, Solution]:
    """The run of one site in a folder that is held: its last state, and its solution."""
    site = stepper.site
    mailbox = stepper.mailbox
    folder = stepper.folder
    job = site.job
    checkpointer = site.checkpointer(folder)
    template = stepper.template()
    state = checkpointer.restore(template, MOST_STEPS)
    old = None if state is template else state
    resumed = live.step = 0 if old is None else old.step
    live.steps = job.steps
    live.report = report
    if old is not None and (folder / FINISHED).is_file():
        ended = stepper.over(old)
        if ended is not None:
            reason = f"This run was complete already. {ended.reason}".strip()
            live.write(str(ended.status), reason)
            return old, site.solution(old, Ended(ended.status, reason))

    # Connect, and find the state to begin with. Whatever ends the run before its first step is an
    # error; from then on it is a status.
    mailbox.waits = live.waits
    try:
        try:
            state = stepper.start(old)
        except EndedError as error:
            raise LostError(str(error)) from error
        names = tuple(name for name in state.history if name != "step")
        plan = Plan(
            job.steps,
            site.every,
            names,
            resumed,
            {} if old is None else old.history,
            saves=job.checkpoint_every,
            on=job.is_asynchronous,
        )
        callbacks.start(plan)
        looks = [callbacks.look, live.look]
        if report is not None:
            looks.append(reporting(report, plan))
        looks.append(saving(checkpointer, plan, stepper.whole))
        ended = callbacks.look(state, None)  # the record of the start is made already
        if ended is None:
            state, ended = run(stepper, plan, state, looks, at_records=len(callbacks) > 0)
        if stepper.lost is not None:
            raise stepper.lost

        # Neighbours may still need what this site has sent; those that would wait for more must
        # know that nothing comes.
        complete = state.step >= job.steps and not job.is_asynchronous
        if ended.status is Status.stopped and not stepper.gone and not complete:
            mailbox.leave(STOPPED, f"{site.site}: {ended.reason}")
        elif ended.status in (Status.done, Status.converged, Status.stopped) and not stepper.gone:
            mailbox.log("done; waiting for the neighbours to have all messages")
            words = "All neighbours have all messages.\n"
            finished = False
            with suppress(KeyboardInterrupt):
                finished = mailbox.finish(lambda: atomic_write(folder / FINISHED, words, PRIVATE))
            if not finished:
                mailbox.log(
                    f"not all of {listed(site.peers)} have finished; restart this site if they"
                    " ask for it"
                )
    finally:
        with suppress(Exception):
            mailbox.close()
    solution = site.solution(state, ended, resumed)
    live.step = solution.steps
    if solution.status.sound:
        live.missing = ()
    live.write(str(solution.status), solution.message)
    callbacks.end(solution)
    return state, solution


@dataclass
class StatusFile:
    """Where a run is and for whom it waits, in a file and on the line of progress.

    steps   of the run; 0 while the sites still find what to run
    begun   the first step seen by this process, and when
    """

    folder: Path
    site: str
    steps: int = 0
    step: int = 0
    report: Report | None = None
    missing: tuple[str, ...] = ()
    written: float = -math.inf
    begun: tuple[int, float] | None = None

    def look(self, state: RunState, ended: Ended | None) -> None:
        self.step = state.step
        self.begun = self.begun or (state.step, time.monotonic())
        self.missing = self.missing if ended else ()
        self.write("running")

    def waits(self, names: tuple[str, ...], seconds: float) -> None:
        """While this site waits, which a signal ends: it is in the middle of a step."""
        if GracefulStop.asked():
            raise KeyboardInterrupt
        show = getattr(self.report, "waits", None)
        if show is not None:
            show(names, seconds)
        self.missing = names
        self.write("running")

    def write(self, status: str, message: str = "") -> None:
        now = time.monotonic()
        if not message and now - self.written < PAUSE:
            return
        self.written = now
        first, since = self.begun or (self.step, now)
        rate = (now - since) / max(1, self.step - first)
        left = round(rate * (self.steps - self.step)) if self.step > first else None
        content = {
            "site": self.site,
            "status": status,
            "message": message,
            "step": self.step,
            "steps": self.steps,
            "waiting_for": self.missing,
            "seconds_left": left if status == "running" else None,
            "at": round(time.time()),
        }
        atomic_write(self.folder / STATUS, json.dumps(content, indent=1) + "\n", PRIVATE)


def summary(site: str, solution: Solution) -> dict[str, object]:
    cost = solution.cost
    return {
        "site": site,
        "status": str(solution.status),
        "message": solution.message,
        "steps": solution.steps,
        "seconds": cost.seconds,
        "compiling": cost.compiling,
        "measuring": cost.measuring,
        "measures": {
            name: values[-1]
            for name, values in solution.history.items()
            if name != "step" and len(values)
        },
    }


def write_solution(folder: Path, site: str, solution: Solution) -> Path:
    """Keep a site's x and y, and how it ended, where only its user can read them."""
    points = {"x": jax.tree.leaves(solution.x), "y": jax.tree.leaves(solution.y)}
    whole = summary(site, solution) | {"folder": str(folder)} | points
    return atomic_write(
        folder / SOLUTION,
        json.dumps(to_json(whole, nonfinite_as_text=True), indent=1) + "\n",
        PRIVATE,
    )
