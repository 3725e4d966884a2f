"""Four hospitals as four owners: a process, a key and a table for each, and neighbours that talk
over TLS.

The patients are those of the UCI heart disease data in the split of FLamby (the same rows, raw,
with the kinds of chest pain and electrocardiogram as text). Every hospital writes its table to a
folder of its own, makes a key, and runs this file with `--site`. What the four of them learn is
compared with a fit of all tables in one process, and with FLamby's published results. Then one
hospital is frozen and another one killed and started again: the model must be the same, bit for
bit. At last Budapest swaps sick and healthy in the records that nobody has checked, and the
hospitals find out.

    python examples/hospitals.py
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from importlib.resources import files
from pathlib import Path

import jax
import numpy as np
import pandas
from sklearn.linear_model import LogisticRegressionCV
from sklearn.pipeline import make_pipeline

from decibo.cli.join import free_port
from decibo.data.heart_disease import FLAMBY, HOSPITALS, KEPT, TRAINED, stratified
from decibo.silo import Consortium, Identity
from decibo.sklearn import SiloEncoder, SiloLogisticRegression, SiloTrust, load, save

# in the order of their names
SITES = {name.replace(" ", "-"): file for name, file in sorted(HOSPITALS.items())}
PUBLISHED = "FedAvg 0.748, FedProx 0.748, Scaffold 0.748, FedAdam 0.779, Cyclic 0.785, pooled 0.795"
LIED = "Budapest"
FROZEN = "Cleveland"
KILLED = "Long-Beach"


def patients(file, seed=FLAMBY):
    """A hospital's patients for training and for testing: raw numbers, two columns of text, and who
    is sick."""
    records = [
        line.split(",") for line in (files("decibo.data") / "heart" / file).read_text().split()
    ]
    kept = [[*record[: len(KEPT)], record[13]] for record in records]
    cells = np.array([record for record in kept if "?" not in record], dtype=float)
    table = pandas.DataFrame(cells[:, :-1], columns=KEPT)
    for name in ("chest pain", "ECG"):
        table[name] = [f"kind {value:g}" for value in table[name]]
    table["disease"] = np.where(cells[:, -1] > 0, "yes", "no")
    train, test = stratified(cells[:, -1] > 0, TRAINED, seed)
    return table.iloc[train], table.iloc[test]


# What a hospital runs


def hospital(job, home, check_labels):
    """Fit with the others; after a crash, the same call goes on."""
    table = pandas.read_csv(home / "patients.csv")
    X = table[list(KEPT)]
    silo = Consortium.at(job, home, log=lambda line: print(line, flush=True))
    if check_labels:
        checked = table["checked"].to_numpy()
        model = SiloTrust(random_state=0).fit(X, table["reported"], checked=checked, silo=silo)
    else:
        model = SiloLogisticRegression(random_state=0).fit(X, table["disease"], silo=silo)
    save(model, home / ("trust.json" if check_labels else "model.json"))


# Everybody at once, to watch


def found(folder):
    """Four hospitals with a folder, a key, a table and an address each, and the job file that all
    of them have."""
    random = np.random.default_rng(0)
    cards = []
    for name, file in SITES.items():
        # decibo site init --name NAME --address ...
        home = Identity.make(folder / name, name, f"127.0.0.1:{free_port()}")
        cards.append(home.card())  # decibo site card
        table = patients(file)[0].copy()
        table["checked"] = random.random(len(table)) < 0.5  # by a second reader
        wrong = (name == LIED) & ~table["checked"]
        table["reported"] = np.where(
            wrong, np.where(table["disease"] == "yes", "no", "yes"), table["disease"]
        )
        table.to_csv(folder / name / "patients.csv", index=False)
    job = folder / "job.toml"
    job.write_text(
        '[network]\nname = "ring"\n\n[run]\ndtype = "float64"\ncheckpoint_every = 50\n\n'
        + "\n".join(cards)
    )
    return job


def start(job, name, *options):
    home = job.parent / name
    command = [sys.executable, __file__, "--site", str(home), "--job", str(job), *options]
    with (home / "log.txt").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def ended(processes, job):
    """Wait for all; a hospital that fails says why."""
    for name, process in processes.items():
        if process.wait() != 0:
            raise SystemExit(f"{name}: " + (job.parent / name / "log.txt").read_text()[-800:])


def reached(job, name):
    """The step of a hospital's newest checkpoint."""
    return max(
        (int(place.name[5:]) for place in (job.parent / name / "runs").glob("*/step-*")), default=0
    )


def disturbed(job):
    """The same fit with one hospital frozen for five seconds and another killed half-way and
    started again."""
    for name in SITES:
        place = job.parent / name
        (place / "runs").rename(place / "calm")
        (place / "model.json").rename(place / "calm.json")
    processes = {name: start(job, name) for name in SITES}
    while reached(job, KILLED) < 100:
        time.sleep(0.05)
    os.kill(processes[FROZEN].pid, signal.SIGSTOP)
    processes[KILLED].kill()
    processes[KILLED].wait()
    time.sleep(5)
    os.kill(processes[FROZEN].pid, signal.SIGCONT)
    processes[KILLED] = start(job, KILLED)  # the same command
    ended(processes, job)
    model = lambda name, file: (job.parent / name / file).read_bytes()
    return all(model(name, "model.json") == model(name, "calm.json") for name in SITES)


def compared(right, other):
    """Paired counts: new patients that only one of two models gets right."""
    return f"{int((right & ~other).sum())} and {int((~right & other).sum())}"


def main():
    warnings.simplefilter("ignore")
    trains = {name: patients(file)[0] for name, file in SITES.items()}
    tests = {name: patients(file)[1] for name, file in SITES.items()}
    everybody = pandas.concat(trains.values())
    new = pandas.concat(tests.values())
    groups = np.repeat(list(SITES), [len(table) for table in trains.values()])
    truth = new["disease"].to_numpy()
    with tempfile.TemporaryDirectory() as folder:
        job = found(Path(folder))
        began = time.monotonic()
        ended({name: start(job, name) for name in SITES}, job)
        seconds = time.monotonic() - began
        models = {name: load(job.parent / name / "model.json") for name in SITES}
        same = disturbed(job)
        ended({name: start(job, name, "--check-labels") for name in SITES}, job)
        trust = load(job.parent / FROZEN / "trust.json")

    whole = make_pipeline(SiloEncoder(), SiloLogisticRegression(random_state=0))
    whole.fit(everybody[list(KEPT)], everybody["disease"], silologisticregression__groups=groups)
    central = make_pipeline(SiloEncoder(), LogisticRegressionCV(max_iter=10_000))
    central.fit(everybody[list(KEPT)], everybody["disease"])
    right = {
        name: models[name].predict(tests[name][list(KEPT)]) == tests[name]["disease"]
        for name in SITES
    }
    owners = np.concatenate(list(right.values()))  # every hospital judges its own new patients
    simulated = whole.predict(new[list(KEPT)]) == truth
    one_place = central.predict(new[list(KEPT)]) == truth
    model = models[FROZEN]
    print(
        f"{len(everybody)} patients at {len(SITES)} hospitals to learn from, {len(new)} new ones.\n"
    )
    print("hospital       patients    new  correct")
    for name, hits in right.items():
        print(f"{name:12s} {len(trains[name]):10d} {len(hits):6d}    {hits.mean():.3f}")
    error = np.sqrt(owners.mean() * (1 - owners.mean()) / len(owners))
    print(
        f"\nfour owners, over TLS      {owners.mean():.3f} ± {error:.3f}   ({model.n_iter_} steps)"
    )
    print(
        f"the same, in one process   {simulated.mean():.3f}           ({whole[-1].n_iter_} steps)"
    )
    print(f"LogisticRegressionCV on all records in one place  {one_place.mean():.3f}")
    print(
        f"right by the owners only, and by one place only: {compared(owners, one_place)} of"
        f" {len(new)}"
    )
    print(f"Published by FLamby: {PUBLISHED}.\n")
    apart = np.abs(model.coef_ - whole[-1].coef_).max()
    agree = (owners == simulated).all()
    print(
        f"Owners and one process agree on every new patient: {agree}; coefficients differ by"
        f" {apart:.0e}."
    )
    print(
        f"{FROZEN} frozen, {KILLED} killed and started again; the model is the same bit for bit:"
        f" {same}."
    )
    print(f"\nTrust, if {LIED} swaps sick and healthy in what nobody checked:")
    for name, weight in zip(trust.silos_, trust.trust_, strict=True):
        print(f"{name:12s} {weight:.2f}")
    print(
        "\nLook at: the owners' line and the one below it, which are the same fit; and the smallest"
        " trust."
    )
    print(
        f"(The first fit took {seconds:.0f} seconds, with starting four processes.)",
        file=sys.stderr,
    )
    assert agree
    assert same
    assert trust.silos_[int(trust.trust_.argmin())] == LIED


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser()
    parser.add_argument("--site", type=Path)
    parser.add_argument("--job", type=Path)
    parser.add_argument("--check-labels", action="store_true")
    given = parser.parse_args()
    if given.site:
        hospital(given.job, given.site, given.check_labels)
    else:
        main()
