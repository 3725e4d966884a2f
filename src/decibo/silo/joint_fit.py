r"""A job whose problem the sites state together: first they agree on what they need, then they run.

    HELLO     (1)  neighbours compare `terms`; the first difference ends all that are connected, and
                   is named
    agree     (2)  exchanges (0, 0), (0, 1), ... of the job, in which sites find what they need to
                   state the problem (collectives.py)
    run       (3)  the method's own exchanges, from (0, n) on, as `join` makes them

A site that crashes before its first checkpoint begins again with (2), and receives the same
messages once more: neighbours keep them for as long as they may be asked (mailbox.py, (6)). One
that crashes later finds the results in its folder.

    DIR/agreed.json    the results of (2), and how many exchanges it had
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Algorithm
from decibo.errors import InputError
from decibo.files import PRIVATE, read_record, write_record
from decibo.problem.problem import Problem
from decibo.run import checkpoint_files
from decibo.run.fingerprint import software
from decibo.run.observers import Callbacks, watched
from decibo.run.solution import Solution, Status
from decibo.silo.collectives import MOST, Collectives
from decibo.silo.consortium import Consortium
from decibo.silo.identity import Identity
from decibo.silo.job import RESIDUAL, Job
from decibo.silo.join import StatusFile, carry_out, private
from decibo.silo.lockstep import Exchanger, LockstepStepper, NotFiniteError
from decibo.silo.mailbox import DIVERGED, EndedError, Mailbox
from decibo.silo.network_measures import NetworkMeasures
from decibo.silo.secure_sum import SecureSums, TooLargeError
from decibo.silo.site_run import prepare
from decibo.silo.tls import TlsWire

AGREED = "agreed.json"
FORMAT = 1
CALLS = 64  # exchanges in a step, beyond which a neighbour's are not kept


def mailbox_of(consortium: Consortium, more: Mapping[str, str]) -> Mailbox:
    """The mailbox of a fit with these terms, which compares them with the neighbours' terms."""
    terms = consortium.terms(more)
    wire = consortium.wire
    if wire is None:
        own = Identity.at(consortium.home)
        wire = TlsWire(consortium, consortium.site, own, consortium.log)
    job = sha256(json.dumps(terms, sort_keys=True).encode()).digest()[:16]
    terms |= software()
    return Mailbox(wire, consortium, job, terms, most=MOST, keep=consortium.keep, calls=CALLS)


@contextmanager
def joint_fit(
    consortium: Consortium, more: Mapping[str, str], data: Sequence[np.ndarray]
) -> Iterator[JointFit]:
    """A fit with the other sites, if they agree on the terms of all jobs and on these; the same
    again after a crash.

    data   this site's own, of which only sums are sent
    """
    mailbox = mailbox_of(consortium, more)
    folder = Path(consortium.folder or Identity.at(consortium.home).run(mailbox.job))
    number = consortium.number(consortium.site)
    with private(folder, consortium.site) as live:
        mailbox.waits = live.waits
        try:
            past = {"calls": 0, "results": None}
            new = not checkpoint_files.steps(folder)
            if new:
                mailbox.start()
            else:
                past = read_record(folder / AGREED, "decibo agreement", FORMAT)
            exchange = Exchanger(mailbox, first=past["calls"])
            sums = None
            if consortium.secure_sums:
                secrets = mailbox.agreed_secrets(folder, data, new=new)
                sums = SecureSums(number, secrets, lambda: (exchange.step, exchange.call))
            everyone = consortium.names
            results = past["results"]
            sites = Collectives(exchange, consortium.network, everyone, number, results, sums)
            yield JointFit(consortium, live, sites, exchange)
        except EndedError as error:
            mailbox.leave(DIVERGED, str(error))
            raise InputError(str(error)) from error
        except (NotFiniteError, TooLargeError) as error:
            what = str(error) or "are not finite"
            why = f"The numbers that {mailbox.me} wants to add to a sum {what}."
            mailbox.leave(DIVERGED, why)
            raise InputError(why) from error
        except InputError as error:
            mailbox.leave(DIVERGED, str(error))
            raise
        finally:
            with suppress(Exception):
                mailbox.close()


@dataclass(eq=False)
class JointFit:
    """What the sites have agreed on, and the run that follows."""

    consortium: Consortium
    live: StatusFile
    collectives: Collectives
    exchange: Exchanger

    def solve(self, problem: Problem, method: Algorithm, *, steps: int, tol: float) -> Solution:
        """The run, until the residual of all sites together is below tol; x and y are the means
        over all sites."""
        own = self.consortium
        job = Job(
            own.sites,
            problem,
            own.network,
            method,
            steps,
            checkpoint_every=own.checkpoint_every,
            patience=own.patience,
            again=own.again,
            relay=own.relay,
            until={RESIDUAL: tol},
        )
        site_run = prepare(job, own.site, None)
        if self.collectives.past is None:  # write down what was agreed
            self.exchange.first = self.exchange.call
            content = {"calls": self.exchange.call, "results": self.collectives.results}
            write_record(self.live.folder / AGREED, "decibo agreement", FORMAT, content, PRIVATE)
        sites = replace(self.collectives, past=None)
        together = NetworkMeasures(site_run, sites)
        stepper = LockstepStepper(site_run, self.live.folder, self.exchange, together)
        with watched(own.progress) as report:
            state, solution = carry_out(stepper, Callbacks(()), report, self.live)
        if solution.status is Status.interrupted:
            raise KeyboardInterrupt(solution.message)
        if not solution.status.sound:
            return solution
        functions = site_run.agent.functions
        mean = lambda name: jnp.asarray((state.extra or {})[f"mean.{name}"], functions.x.dtype)
        return replace(solution, x=functions.x.unravel(mean("x")), y=functions.y.unravel(mean("y")))
