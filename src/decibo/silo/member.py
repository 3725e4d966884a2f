r"""A site as a member of a job whose problem the sites find together: first a meeting, then the
run.

    HELLO     (1)  neighbours compare `terms`; the first difference ends all that talk to each other, and is named
    meeting   (2)  exchanges (0, 0), (0, 1), ... of the job, in which sites find what they need to state the problem
    run       (3)  the method's own exchanges, from (0, n) on, as `join` makes them

A site that crashes before its first checkpoint begins again with (2), and hears what was said there
once more: neighbours keep it for as long as they may be asked (post.py, (6)). One that crashes
later finds the results in its folder.

    DIR/agreed.json    the results of (2), and how many exchanges it had
    DIR/means.json     the means of all sites' x and y at the end
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from decibo.algorithm.algorithm import Algorithm, Core
from decibo.errors import CorruptedFileError, InputError, short_repr
from decibo.files import PRIVATE, atomic_write, read_checked
from decibo.measure.measures import Snapshot
from decibo.network.network import Network
from decibo.problem.problem import Functions, Oracle, Problem
from decibo.pytree import Tree
from decibo.run import checkpoint_files
from decibo.run.checkpoint import check_folder
from decibo.run.fingerprint import digest, software
from decibo.run.lock import hold
from decibo.run.solution import Solution, Status
from decibo.silo.collectives import Meeting
from decibo.silo.identity import Home
from decibo.silo.job import KEEP, Job, Members, Site, read_members, read_tables
from decibo.silo.kept import Kept, Known
from decibo.silo.lockstep import NotFiniteError, Runner, Talk
from decibo.silo.mailbox import DIVERGED, EndedError, Post, Settings
from decibo.silo.mix import neighbours_of
from decibo.silo.secret import Shares, keep_shares, own_shares, secrets_of
from decibo.silo.secure_sum import Sums, TooLargeError, check_sums
from decibo.silo.site_run import Say, prepare
from decibo.silo.tls import TlsWire
from decibo.silo.wire import Wire
from decibo.validate import flag, integer, positive

AGREED = "agreed.json"
MEANS = "means.json"
MOST = 1 << 22  # numbers in a message
CALLS = 64  # exchanges in a step, beyond which a neighbour's are not kept
OPTIONS = ("checkpoint_every", "patience", "dtype", "secure_sums")


@dataclass(frozen=True, eq=False)
class Member:
    """This site among the sites of a job: `Member.at("job.toml")`.

    site              which of them it is
    home              the folder that `decibo site init` made, with the key; ~/.decibo/site by
                      default
    folder            where it keeps its checkpoints; in the home folder by default
    wire              what carries the messages, TLS by default; a wire serves one fit
    run               a word that tells a run from earlier ones of the same sites: all of them must
                      use the same
    checkpoint_every  steps between two checkpoints
    patience          seconds for which a silent site is waited for
    again             seconds of silence after which a neighbour is asked again
    say               gets the lines of the log
    secure_sums       whether sites hide what they add to a sum; for three or more that are all
                      neighbours
    """

    sites: tuple[Site, ...]
    network: Network
    site: str
    relay: Site | None = None
    home: str | Path | None = None
    folder: str | Path | None = None
    wire: Wire | None = None
    run: str = ""
    checkpoint_every: int = 10
    patience: float = 3600.0
    again: float = 1.0
    say: Say = field(default=lambda line: None)
    secure_sums: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "sites", tuple(self.sites))
        _ = self.number
        integer("checkpoint_every", self.checkpoint_every)
        positive("patience", self.patience)
        positive("again", self.again)
        if flag("secure_sums", self.secure_sums):
            check_sums(self.network)
        if not isinstance(self.run, str):
            raise InputError(
                "run must be a word that all sites use for this run, but it is"
                f" {short_repr(self.run)}."
            )
        if len(self.sites) != self.network.agents:
            raise InputError(
                f"The network must have an agent for each site, but there are {len(self.sites)}"
                f" sites and {self.network!r}."
            )

    @classmethod
    def at(
        cls,
        path: str | Path,
        home: str | Path | None = None,
        *,
        run: str = "",
        say: Say | None = None,
        wire: Wire | None = None,
    ) -> Member:
        """The site of this machine in a job file with [network], [run] and a [[site]] for each."""
        members = read_members(path, certificates=wire is None)
        options = read_tables(path, run=OPTIONS)["run"]
        wanted = options.pop("dtype", None)
        if wanted is not None and wanted != jnp.zeros(()).dtype.name:
            raise InputError(
                f"{path} computes in {short_repr(wanted)}, but JAX is set to"
                f" {jnp.zeros(()).dtype.name} here.",
                f"Set jax_enable_x64 to {wanted == 'float64'} before anything else.",
            )
        own = Home.at(home)
        rest = {"home": own.folder, "wire": wire, "run": run} | (
            {} if say is None else {"say": say}
        )
        return cls(members.sites, members.network, own.name, members.relay, **rest, **options)

    @property
    def number(self) -> int:
        """The agent that this site is."""
        return self.members.number(self.site)

    @property
    def members(self) -> Members:
        """Who takes part."""
        return Members(self.sites, self.network, self.relay)

    @property
    def peers(self) -> list[str]:
        """The names of the neighbours, in the order of the agents."""
        return [self.sites[other].name for other in neighbours_of(self.network, self.number)]

    def terms(self, more: Mapping[str, str]) -> dict[str, str]:
        """What the sites compare, in words."""
        return {
            "sites": ", ".join(
                f"{site.name} {site.fingerprint[:16]}".strip() for site in self.sites
            ),
            "network": f"{self.network!r} {digest(self.network.weights.data)}",
            "run": self.run,
            "checkpoint_every": str(self.checkpoint_every),
            "dtype": jnp.zeros(()).dtype.name,
            **({"secure_sums": "yes"} if self.secure_sums else {}),
            **more,
        }

    def greeting(self, more: Mapping[str, str]) -> tuple[bytes, Post]:
        """The mark of a job with these terms, and what compares them with the neighbours'."""
        terms = self.terms(more)
        mark = sha256(json.dumps(terms, sort_keys=True).encode()).digest()[:16]
        wire = self.wire
        if wire is None:
            own = Home.at(self.home)
            credentials = own.credentials(self.sites[self.number])
            wire = TlsWire(self.members, self.site, credentials, self.say, own.listen)
        settings = Settings(
            self.site,
            [site.name for site in self.sites],
            self.peers,
            mark,
            terms | software(),
            most=MOST,
            again=self.again,
            patience=self.patience,
            say=self.say,
        )
        return mark, Post(wire, settings, keep=2 * self.checkpoint_every + KEEP, calls=CALLS)

    @contextmanager
    def meet(self, more: Mapping[str, str], data: Sequence[np.ndarray]) -> Iterator[Session]:
        """Meet the other sites, if they agree on the terms of all jobs and on these; the same again
        after a crash.

        data   this site's own, of which nothing is said but sums
        """
        mark, post = self.greeting(more)
        folder = (
            Home.at(self.home).folder / "runs" / mark.hex()[:16]
            if self.folder is None
            else Path(self.folder)
        )
        with hold(check_folder(folder), own=True):
            try:
                checkpoint_files.clear(folder)
                past = _read(folder / AGREED) if checkpoint_files.steps(folder) else None
                shares = (
                    own_shares(folder, self.peers, data, new=past is None)
                    if self.secure_sums
                    else None
                )
                talk = Later(post, self.peers, first=0 if past is None else past["calls"])
                names = [site.name for site in self.sites]
                if past is None:
                    post.start()
                with _told(post):
                    sums = None
                    if shares is not None:
                        heard = post.share(*shares)
                        keep_shares(folder, shares[0], heard, data)
                        sums = self._sums(mark, shares[0], heard, talk)
                    results = None if past is None else past["results"]
                    meeting = Meeting(talk, self.network, names, self.number, results, sums)
                    yield Session(self, folder, meeting, post, talk)
            finally:
                with suppress(Exception):
                    post.close()

    def _sums(self, mark: bytes, own: Shares, heard: Shares, talk: Talk) -> Sums:
        """What hides this site's numbers in sums, from what each link has agreed on when the
        meeting began."""
        numbers = {peer: self.members.number(peer) for peer in self.peers}
        return Sums(
            self.number,
            secrets_of(mark, self.number, numbers, own, heard),
            lambda: (talk.step, talk.call),
        )


@contextmanager
def _told(post: Post) -> Iterator[None]:
    """Tell the neighbours why this site does not go on, and say what they told in the same way."""
    try:
        yield
    except EndedError as error:
        post.leave(DIVERGED, str(error))
        raise InputError(str(error)) from error
    except (NotFiniteError, TooLargeError) as error:
        why = f"The numbers that {post.me} wants to add to a sum {str(error) or 'are not finite'}."
        post.leave(DIVERGED, why)
        raise InputError(why) from error
    except InputError as error:
        post.leave(DIVERGED, str(error))
        raise


@dataclass(eq=False)
class Session:
    """A meeting, and the run that follows it."""

    member: Member
    folder: Path
    meeting: Meeting
    post: Post
    talk: Later

    def solve(self, problem: Problem, method: Algorithm, *, steps: int, tol: float) -> Solution:
        """The run, until the residual of all sites together is below tol; x and y are the means
        over all sites."""
        member = self.member
        job = Job(
            member.sites,
            problem,
            member.network,
            method,
            steps,
            checkpoint_every=member.checkpoint_every,
            patience=member.patience,
            again=member.again,
            relay=member.relay,
        )
        run = prepare(job, member.site, None)
        kept = Kept(self.folder, member.number, run.rows, job.terms | {"site": member.site})
        known = kept.restore(run.shape)
        if self.meeting.past is None:
            self._note()
        meeting = replace(self.meeting, past=None)
        judge = Residual(
            run.agent.functions, method.core, run.rows, meeting, self.folder / MEANS, steps, tol
        )
        runner = Together(run, kept, max(1, steps // 100), None, member.say, judge, self.talk)
        if known is not None and kept.finished and (known.step == steps or runner.enough(known)):
            status = Status.converged if runner.enough(known) else Status.done
            solution = run.solution(known, status, "This run was complete already.", 0.0)
        else:
            solution = runner.run(self.post, known)
        if solution.status is Status.interrupted:
            raise KeyboardInterrupt(solution.message)
        if solution.status is Status.diverged:
            return solution
        means = _read(self.folder / MEANS)
        functions = run.agent.functions
        of = lambda name: jnp.asarray(means[name], run.start["x"].dtype)
        return replace(solution, x=functions.x.unravel(of("x")), y=functions.y.unravel(of("y")))

    def _note(self) -> None:
        """Write down what was agreed."""
        self.talk.first = self.talk.call
        content = {"calls": self.talk.call, "results": self.meeting.results}
        atomic_write(self.folder / AGREED, json.dumps(content) + "\n", PRIVATE)


@dataclass
class Later(Talk):
    """The exchanges of a run, after `first` others that the sites have made in its step 0."""

    first: int = 0

    def of(self, step: int) -> Later:
        """For the next step."""
        super().of(step)
        self.call = 0 if step else self.first
        return self


@partial(jax.jit, static_argnames="functions")
def _own(
    functions: Functions, core: Core, data: Tree, state: Tree, k: jax.Array
) -> dict[str, jax.Array]:
    """Where a site is and where its own data would have it go: x and the answer, and the directions
    of both."""
    rows = {name: row[None] for name, row in core.view(state).items()}
    here = Snapshot(functions, data, rows, k, {}, core.direction, core.answer)
    inner = lambda d, x, y: Oracle(functions, d).inner(x, y)[1]
    return {
        "x": rows["x"][0],
        "y": rows[core.answer][0],
        "outer": here.mean_direction.x,
        "inner": jax.vmap(inner)(data, rows["x"], rows[core.answer])[0],
    }


@dataclass(eq=False)
class Residual:
    r"""How far the sites are from a fixed point, all of them together, by first gradients only.

        (4)  residual = max of |mean of the directions of x|, |mean of g_y|, |x_i - mean x|, |y_i -
             mean y|

    The means at the end of the run are written to a file, since they are the answer of all sites.
    """

    functions: Functions
    core: Core
    data: Tree
    meeting: Meeting
    place: Path
    steps: int
    tol: float

    def __call__(self, known: Known) -> np.ndarray:
        """All residuals so far, with the one of this step, which sums and maxima over all sites
        give."""
        found = _own(self.functions, self.core, self.data, known.state, np.int32(known.step))
        own = {name: np.asarray(row, np.float64) for name, row in found.items()}
        mean = self._means(own)
        apart = max(float(np.abs(own[name] - mean[name]).max(initial=0)) for name in ("x", "y"))
        moves = [float(np.abs(mean[name]).max(initial=0)) for name in ("outer", "inner")]
        residual = max(*moves, float(self.meeting.largest(apart)))  # (4)
        so_far = np.append(known.history.get("residual", []), residual)
        if known.step == self.steps or self.enough({"residual": so_far}):
            content = {name: mean[name].tolist() for name in ("x", "y")}
            atomic_write(self.place, json.dumps(content) + "\n", PRIVATE)
        return so_far

    def enough(self, history: Mapping[str, np.ndarray]) -> bool:
        """Whether the residual is at most tol now and was not before, as `until` of `solve` has
        it."""
        residuals = history["residual"]
        return bool(residuals[-1] <= self.tol and (residuals > self.tol).any())

    def _means(self, own: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        total = self.meeting.total(np.concatenate(list(own.values()))) / len(self.meeting.names)
        ends = np.cumsum([row.size for row in own.values()])
        return dict(zip(own, np.split(total, ends[:-1]), strict=True))


@dataclass(eq=False)
class Together(Runner):
    """The loop of a site that records with the others, and ends with them when that is enough."""

    judge: Residual
    speech: Later

    def begin(self, post: Post, known: Known | None) -> Known:
        """The state to go on from; the sites may have talked before."""
        post.start()
        self.talk = self.speech
        if known is None:
            known = self._recorded(
                Known(0, self.site.agent.begin(self.site.first, self.talk.of(0)), {}, {})
            )
        return known

    def enough(self, known: Known) -> bool:
        """Whether the run ends here, before all steps are done."""
        return known.step == known.history["step"][-1] and self.judge.enough(known.history)

    def ended(self, post: Post, known: Known) -> bool:
        """Whether all is done, or enough."""
        return super().ended(post, known) or self.enough(known)

    def result(self, post: Post, known: Known) -> tuple[Known, Status, str]:
        """How the run has ended, in words."""
        if self.enough(known):
            return (
                known,
                Status.converged,
                f"Reached residual <= {self.judge.tol:g} at step {known.step}.",
            )
        return super().result(post, known)

    def _stepped(self, post: Post, known: Known) -> Known:
        known = super()._stepped(post, known)
        if self.enough(known) and known.step % self.site.job.checkpoint_every:
            self.kept.save(known._replace(said=post.said()))
        return known

    def _recorded(self, known: Known, *, last: bool = False) -> Known:
        after = super()._recorded(known, last=last)
        if after is known:
            return known
        residual = self.judge(known)
        return after._replace(history=after.history | {"residual": residual})


def _read(path: Path) -> dict[str, Any]:
    """What this site wrote down."""
    try:
        content = json.loads(read_checked(path))
    except (OSError, ValueError) as error:
        raise CorruptedFileError(
            f"{path} is missing or cannot be read, but the checkpoints beside it need it."
        ) from error
    return content
