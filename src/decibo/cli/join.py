"""decibo join, relay and rehearse: take part in a job, connect sites that only call out, try a job
on one machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import jax
import numpy as np
import tomli_w

import decibo
from decibo.cli import terminal
from decibo.cli.errors import Exit
from decibo.cli.script import computing_in
from decibo.cli.site import load_data, load_job, write_log
from decibo.cli.solving import code_of, live_view
from decibo.errors import InputError
from decibo.formatting import format_number
from decibo.silo.consent import trust_for
from decibo.silo.consortium import Consortium, read_consortium, read_dtype, read_tables
from decibo.silo.identity import Identity
from decibo.silo.join import SOLUTION, summary, write_solution
from decibo.silo.join import join as take_part
from decibo.silo.relay import Relay

PAUSE = 0.1  # seconds between two looks at the processes of a rehearsal
LOOPBACK = "127.0.0.1"
PORTS = range(20_000, 32_000)  # below those that systems give to connections


def join(
    path: Path,
    home: Path | None,
    synthetic: bool,
    trusted: Iterable[str] | None,
    same_programs: bool,
    as_json: bool,
) -> Exit:
    """Take part in a job as the site of this machine, from the start or from the last
    checkpoint."""
    site = Identity.at(home)
    if "estimator" in read_tables(path):
        return _fit(path, site, same_programs, as_json)
    trust = trust_for(path, trusted or (), as_json)
    with computing_in(read_dtype(path)):
        job = load_job(path, trust)
        data = load_data(site, trust, synthetic)
        solution = take_part(
            job,
            site=site.name,
            data=data,
            home=site.folder,
            progress=live_view(),
            log=write_log,
            same_programs=same_programs,
        )
        place = write_solution(site.run(job.digest), site.name, solution)
    outcome = summary(site.name, solution) | {"folder": str(place.parent)}
    return _show_end(
        solution, outcome, as_json, f"This site's x and y are in {terminal.path_of(place)}"
    )


def _fit(path: Path, site: Identity, same_programs: bool, as_json: bool) -> Exit:
    """Fit the estimator of a job with the others, and keep the model."""
    from decibo.silo.estimator_job import fit_job  # needs scikit-learn

    with computing_in(read_dtype(path)):
        model, place, own = fit_job(path, site, log=write_log, same_programs=same_programs)
    outcome = summary(site.name, model.solution_) | {"model": str(place), **own}
    rows, columns, (score, value) = own["rows"], own["columns"], list(own.items())[-1]
    where = (
        f"The model, the same at all sites, is in {terminal.path_of(place)}\n"
        f"{score} on this site's own {rows} rows of {columns} columns, from which it has learned:"
        f" {value:.3f}"
    )
    return _show_end(model.solution_, outcome, as_json, where)


def _show_end(
    solution: decibo.Solution, outcome: Mapping[str, object], as_json: bool, where: str
) -> Exit:
    if as_json:
        terminal.print_json(outcome)
    else:
        terminal.show_run(solution)
        terminal.say(where)
    return code_of(solution.status)


def relay(path: Path, listen: str, home: Path | None) -> Exit:
    """Copy ciphertext between sites of a job that can only call out, until interrupted."""
    site = Identity.at(home)
    consortium = read_consortium(path)
    if consortium.relay is None:
        raise InputError(
            f"{path} has no [relay].", "Add its address and the certificate of `decibo site card`."
        )
    served = Relay(consortium, site.credentials(consortium.relay), write_log)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(served.serve(listen))
    return Exit.RAN


def rehearse(path: Path, home: Path | None, trusted: Iterable[str] | None, as_json: bool) -> Exit:
    """All sites of a job as processes of this machine, with the data that its problem has; compared
    with solve."""
    if "estimator" in read_tables(path):
        return _rehearse_fit(path, Identity.at(home), as_json)
    names = list(trusted or ())
    trust = trust_for(path, names, as_json)
    with computing_in(read_dtype(path)), tempfile.TemporaryDirectory() as folder:
        job = load_job(path, trust)
        homes = _homes(job.consortium, Path(folder))
        options = [option for name in names for option in ("--trust", name)]
        _rehearsed(path, job.consortium, homes, ["--synthetic", *options])
        found = {
            name: json.loads(next(home.folder.glob(f"runs/*/{SOLUTION}")).read_text())
            for name, home in homes.items()
        }
        expected = decibo.solve(
            job.problem, job.network, job.method, steps=job.steps, seed=job.seed, measures=[]
        )
        apart: dict[str, float] = {}
        for number, (site, own) in enumerate(found.items()):
            agents = {"x": expected.agents.x, "y": getattr(expected.agents, job.method.answer)}
            apart[site] = max(
                float(np.max(np.abs(np.asarray(mine, float) - row[number]), initial=0))
                for name, rows in agents.items()
                for mine, row in zip(own[name], jax.tree.leaves(rows), strict=True)
            )
    done = "come to an end" if job.is_asynchronous else f"done {job.steps} steps"
    words = [f"All {len(apart)} sites have {done}, each in a process of its own."]
    if job.is_asynchronous or job.method.masks:
        why = "no site waits" if job.is_asynchronous else "new masks are drawn"
        words.append(
            f"The way differs from that of the simulation, since {why}: only where they come to"
            " rest agrees."
        )
    return _show_rehearsal(apart, job.steps, words, as_json)


def _rehearse_fit(path: Path, site: Identity, as_json: bool) -> Exit:
    """The same for a job with an estimator: this site's own table is dealt out to all sites, and
    the model compared with that of a fit in one process."""
    from sklearn.pipeline import make_pipeline

    from decibo.silo.estimator_job import estimator_of, own_table
    from decibo.sklearn import SiloEncoder, load

    consortium = read_consortium(path)
    with computing_in(read_dtype(path)), tempfile.TemporaryDirectory() as folder:
        model, label = estimator_of(path.name, read_tables(path)["estimator"])
        X, y = own_table(site, label)
        silos = np.resize(consortium.names, len(y))
        homes = _homes(consortium, Path(folder))
        for name, home in homes.items():
            rows = silos == name
            X[rows].assign(**{label: y[rows]}).to_csv(home.folder / "table.csv", index=False)
            with (home.folder / "site.toml").open("a") as file:
                file.write('table = "table.csv"\n')
        _rehearsed(path, consortium, homes, [])
        whole = make_pipeline(SiloEncoder(), model.set_params(network=consortium.network))
        whole.fit(X, y, **{f"{whole.steps[-1][0]}__groups": silos})
        says = lambda each: getattr(each, "predict_proba", each.predict)(X)
        found = {
            name: says(load(next(home.folder.glob("models/*.json"))))
            for name, home in homes.items()
        }
        apart = {name: float(np.abs(own - says(whole)).max()) for name, own in found.items()}
    words = [
        f"All {len(apart)} sites have the model, each in a process of its own with a share of the"
        f" {len(y)} rows of {site.table}. The table says how far their predictions are from those"
        " of a fit in one process."
    ]
    return _show_rehearsal(apart, model.n_iter_, words, as_json)


def _show_rehearsal(apart: dict[str, float], steps: int, words: list[str], as_json: bool) -> Exit:
    if as_json:
        terminal.print_json({"steps": steps, "sites": apart})
        return Exit.RAN
    rows = [(site, format_number(value)) for site, value in apart.items()]
    terminal.table(("site", "from the simulation by"), rows)
    terminal.say(*words)
    return Exit.RAN


def _homes(consortium: Consortium, folder: Path) -> dict[str, Identity]:
    """Made-up folders of all sites, with addresses on this machine for those that have one."""
    here = lambda site: None if site.address is None else f"{LOOPBACK}:{free_port()}"
    return {
        site.name: Identity.make(folder / site.name, site.name, here(site))
        for site in consortium.sites
    }


def _rehearsed(
    path: Path, consortium: Consortium, homes: Mapping[str, Identity], options: list[str]
) -> None:
    """Each site joins in a process of its own, until all of them are done."""
    folder = next(iter(homes.values())).folder.parent
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    entry = lambda home: tomllib.loads(home.card())["site"][0]
    tables["site"] = [entry(home) for home in homes.values()]
    with contextlib.ExitStack() as stack:
        # modules are looked for beside it
        copy = path.resolve().parent / f".rehearsal-{os.getpid()}-{path.name}"
        stack.callback(copy.unlink, missing_ok=True)

        def start(name: str, home: Identity, *words: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", "decibo", words[0], str(copy), *words[1:]]
            command += ["--home", str(home.folder)]
            return stack.enter_context(_running(command, folder / f"{name}.txt"))

        relay = None
        if consortium.relay is not None:
            relay = Identity.make(folder / "the relay", "relay", f"{LOOPBACK}:{free_port()}")
            tables["relay"] = entry(relay)
        copy.write_text(tomli_w.dumps(tables), encoding="utf-8")
        if relay is not None:
            start("relay", relay, "relay", "--listen", str(relay.address))
        words = ["join", "--json", *options]
        running = {name: start(name, home, *words) for name, home in homes.items()}
        codes: dict[str, int | None] = dict.fromkeys(running)
        # if one fails, the others would wait for it
        while None in codes.values() and not any(codes.values()):
            time.sleep(PAUSE)
            codes = {name: process.poll() for name, process in running.items()}
    for name, code in codes.items():
        if code:
            lines = (folder / f"{name}.txt").read_text(errors="replace").strip().splitlines()
            raise InputError(
                f"In the rehearsal {name} ended with exit code {code}: {lines[-1] if lines else ''}"
            )


def free_port() -> int:
    """A port of this machine that nobody listens on, and that no connection gets by itself in the
    meantime."""
    for port in random.SystemRandom().sample(PORTS, 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port
    raise OSError("no free port on this machine")


@contextlib.contextmanager
def _running(command: list[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that does not outlive the block."""
    with (
        output.open("wb") as file,
        subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            process.wait()
