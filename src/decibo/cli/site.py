"""decibo site init, card, check and status: a site's key and card, what a job would have it say,
how often and to whom, and where its runs are."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from decibo.cli import terminal
from decibo.cli.errors import Exit, one_line
from decibo.cli.script import computing_in
from decibo.errors import InputError
from decibo.formatting import format_bytes, format_seconds, listed
from decibo.problem.problem import Problem
from decibo.pytree import Tree
from decibo.run.lock import is_held
from decibo.silo.consent import Trust, own_factory, own_function, trust_for
from decibo.silo.consortium import Consortium, read_dtype, read_tables
from decibo.silo.identity import Identity
from decibo.silo.job import Job, read_job
from decibo.silo.join import STATUS
from decibo.silo.joint_fit import mailbox_of
from decibo.silo.mailbox import Mailbox
from decibo.silo.site_run import SiteRun, prepare
from decibo.silo.tls import TlsWire, route

PAUSE = 0.05  # seconds between two looks at who has answered
SAME = "runs the same job"
ROUTES = {"call": "called from here", "wait": "calls this site", "relay": "through the relay"}
ENCRYPTED = "Messages are encrypted on their way, and nobody but these neighbours can read them. "
REVEALS = (
    "The neighbours can, and what they read says something about the data: the first messages are"
    " gradients. No row of the data is sent."
)
MASKED = (
    "The neighbours can: masks hide every gradient from a neighbour as long as not all neighbours"
    " work together, but not how gradients change from step to step. No row of the data is sent."
)
SUMMED = (
    "They can read the sum of what all neighbours of theirs send, unless several work together, and"
    " the first sums are sums of gradients. No row of the data is sent."
)


def init(name: str, address: str | None, home: Path | None, as_json: bool) -> Exit:
    made = Identity.make(home, name, address)
    return _show_card(
        made,
        as_json,
        f"Made the site {name} in {terminal.path_of(made.folder)}; its key stays there.",
    )


def card(home: Path | None, as_json: bool) -> Exit:
    return _show_card(Identity.at(home), as_json, "")


def _show_card(home: Identity, as_json: bool, first: str) -> Exit:
    fingerprint = home.site.fingerprint
    if as_json:
        terminal.print_json({"name": home.name, "fingerprint": fingerprint, "card": home.card()})
        return Exit.RAN
    if first:
        print(f"{first}\n", file=sys.stderr)
    print(home.card())
    pairs = " ".join(fingerprint[i : i + 4] for i in range(0, len(fingerprint), 4))
    print(f"Fingerprint, for comparing by telephone:\n{pairs}", file=sys.stderr)
    return Exit.RAN


def status(home: Path | None, as_json: bool) -> Exit:
    """Where all runs of this site are: what their folders say, the newest first."""
    site = Identity.at(home)
    runs = site.folder / "runs"
    found = []
    for path in runs.iterdir() if runs.exists() else ():
        file = path / STATUS
        try:
            run = {"job": path.name, **json.loads(file.read_text(encoding="utf-8"))}
            # A process that was killed could not write how it ended.
            if run["status"] == "running" and not is_held(path):
                run |= {"status": "killed", "seconds_left": None}
            left = run["seconds_left"]
            words = "" if left is None else f"{format_seconds(left)} to step {run['steps']}"
            if run["waiting_for"]:
                words = f"waiting for {listed(run['waiting_for'])}"
            step = f"{run['step']} of {run['steps']}" if run["steps"] else "not begun"
            age = f"{format_seconds(max(time.time() - run['at'], 1))} ago"
            found.append((run["at"], run, (run["job"], run["status"], step, words, age)))
        except (FileNotFoundError, NotADirectoryError):
            continue  # a run that ended before it was connected, or no run
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{file} cannot be read as the status of a run: {one_line(repr(error))}.",
                "Delete it.",
            ) from None
    found.sort(key=lambda run: -run[0])
    if as_json:
        terminal.print_json({"site": site.name, "runs": [run for _, run, _ in found]})
    elif not found:
        terminal.say(f"{site.name} has taken part in no run with {terminal.path_of(site.folder)}.")
    else:
        rows = [row for _, _, row in found]
        terminal.table(("job", "status", "step", "", "written"), rows, left=5)
    return Exit.RAN


def check(
    path: Path,
    home: Path | None,
    wait: float,
    synthetic: bool,
    trusted: Iterable[str] | None,
    same_programs: bool,
    as_json: bool,
) -> Exit:
    """What a job would have this site say, and whether its neighbours answer and run the same
    job."""
    site = Identity.at(home)
    if "estimator" in read_tables(path):
        return _check_fit(path, site, wait, same_programs, as_json)
    trust = trust_for(path, trusted or (), as_json)
    with computing_in(read_dtype(path)):
        job = load_job(path, trust)
        run = prepare(job, site.name, load_data(site, trust, synthetic))
        wire = TlsWire(job.consortium, site.name, site, write_log)
        answers = _answers(run.mailbox(wire, same_programs=same_programs), wait)
        sent, size = _sent(run)
        title = f"{job.method!r}, {job.steps} steps on {job.network!r}"
    reveals = SUMMED if job.secure_sums else MASKED if job.method.masks else REVEALS
    words = (_in_words(run, format_bytes(size)), ENCRYPTED + reveals)
    return _show(job.consortium, site.name, job.digest, answers, title, words, sent, as_json)


def _check_fit(path: Path, site: Identity, wait: float, same_programs: bool, as_json: bool) -> Exit:
    """The same for a job with an estimator, whose problem the sites state together."""
    from decibo.silo.estimator_job import preview  # needs scikit-learn

    with computing_in(read_dtype(path)):
        consortium, terms, own = preview(path, site, write_log, same_programs=same_programs)
        mailbox = mailbox_of(consortium, terms)
        answers = _answers(mailbox, wait)

    # What all sites would read, what they would add up, and what neighbours would read.
    columns, classes = own["columns"], own["classes"]
    gaps = [name for name, kind in columns.items() if kind == "gaps"]
    text = [f"{name} ({', '.join(words)})" for name, words in own["categories"].items()]
    read = [f"the names of the columns, {', '.join(columns)}"]
    read += [f"that {listed(gaps)} {'has' if len(gaps) == 1 else 'have'} gaps"] if gaps else []
    read += [f"the categories of {'; '.join(text)}"] if text else []
    read += [f"the classes {listed([str(label) for label in classes])}"] if classes else []
    hidden = consortium.secure_sums
    part = "no site reads" if hidden else "neighbours may read"
    words = (
        f"All sites read {'; '.join(read)}.",
        "They read how many samples they have together, and the sums of all columns and of their"
        f" squares; {part} what this {'one' if hidden else 'site'} adds.",
        "In every step a message with gradients goes from here to each of"
        f" {listed(consortium.peers)}. Neither masks nor secure sums hide these gradients.",
        ENCRYPTED + REVEALS,
    )
    title = f"{terms['estimator']}, at most {own['steps']} steps on {consortium.network!r}"
    return _show(consortium, site.name, mailbox.job, answers, title, words, own, as_json)


def _show(
    consortium: Consortium,
    me: str,
    job: bytes,
    answers: Mapping[str, str],
    title: str,
    words: Sequence[str],
    more: Mapping[str, object],
    as_json: bool,
) -> Exit:
    """What the neighbours say, and what leaves this site."""
    if as_json:
        terminal.print_json({"site": me, "job": job.hex(), "neighbours": answers, **more})
    else:
        sites = {each.name: each for each in consortium.sites}
        way = lambda peer: ROUTES[route(consortium, sites[me], sites[peer]) or "wait"]
        rows = [
            (peer, sites[peer].address or "", way(peer), answer) for peer, answer in answers.items()
        ]
        terminal.say(f"{me}, job {job.hex()[:16]}: {title}", "")
        terminal.table(("neighbour", "address", "connection", "answer"), rows, left=4)
        terminal.say(*words)
    same = all(answer.startswith(SAME) for answer in answers.values())
    return Exit.RAN if same else Exit.LOST


def _sent(run: SiteRun) -> tuple[dict[str, object], int]:
    """What leaves this site, and how many bytes that are to each neighbour."""
    times = lambda sizes: [{"times": n, "numbers": size} for size, n in Counter(sizes).items()]
    numbers = sum(run.before) + run.job.steps * sum(run.during)
    size = numbers * run.agent.functions.x.dtype.itemsize
    sent = {"before_the_first_step": times(run.before), "in_every_step": times(run.during)}
    return {**sent, "bytes_to_each_neighbour": size}, size


def _in_words(run: SiteRun, whole: str) -> str:
    parts = lambda sizes: listed(
        [f"{n if n > 1 else 'one'} of {size} numbers" for size, n in Counter(sizes).items()]
    )
    before = f"Before the first step, {parts(run.before)}. " if run.before else ""
    job = run.job
    if job.is_asynchronous:
        often = "After every step" if job.pace is None else f"Every {job.pace:g} seconds"
        return (
            f"Messages from here to each of {listed(run.peers)}: {often}, {parts(run.during)},"
            f" repeated every {job.again:g} s; {whole} in {job.steps} steps without the"
            " repetitions."
        )
    return (
        f"Messages from here to each of {listed(run.peers)}: {before}In every step,"
        f" {parts(run.during)}; {whole} in all {run.job.steps} steps."
    )


def _answers(mailbox: Mailbox, wait: float) -> dict[str, str]:
    """What each neighbour says about its job."""
    mailbox.start()
    try:
        until = time.monotonic() + wait
        while len(mailbox.greeted) < len(mailbox.peers) and time.monotonic() < until:
            time.sleep(PAUSE)
    finally:
        mailbox.close()
    words = {
        peer: differs or (f"{SAME}, but {note}" if (note := mailbox.notes[peer]) else SAME)
        for peer, differs in mailbox.greeted.items()
    }
    return {
        peer: words.get(peer, "does not answer: is join or site check running there?")
        for peer in mailbox.peers
    }


# What join and rehearse need too


def load_job(path: Path, trust: Trust) -> Job:
    """The job in a file; functions that it names are imported if the user agrees."""
    return read_job(path, own=lambda name, where: own_factory(name, where, Problem, trust))


def load_data(home: Identity, trust: Trust, synthetic: bool) -> Tree:
    """This site's data, from the function that its own site.toml names; None for the problem's
    own."""
    if synthetic:
        return None
    where = f"{home.folder / 'site.toml'}, data"
    if home.data is None:
        raise InputError(
            f"{home.folder / 'site.toml'} does not say what loads this site's data.",
            'Add data = "module:function", or pass --synthetic to try the job with the data that'
            " its problem has.",
        )
    data = own_function(home.data, where, trust)()
    if data is None:
        raise InputError(f"{where}: {home.data} returned None.", "Return this site's data.")
    return data


def write_log(line: str) -> None:
    """A line of the log, on standard error."""
    print(f"{datetime.now():%H:%M:%S} {one_line(line)}", file=sys.stderr, flush=True)
