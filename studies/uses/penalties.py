"""One penalty for each feature: before and after y is measured in units in which its curvature
cannot move, beside one global penalty.

    DECIBO_DATA=my/data python -m studies.uses.penalties            # --quick: fewer settings, seeds

Five places of the benchmark, their own tuning (4 rounds of 12 settings on 3 seeds, 1200 steps) and
judging (5 other seeds). The hard target of a seed leaves 1 % of the way from Phi(x0) to the lowest
Phi that any method reached before, in the units of the paper: tuned `ahead_exact`, with momentum,
SLDBO, and the automatic steps. "scaled" is logistic_hyperparameters(scaled=True), "floor" adds
floor=0.01. "one, 39 fits" is ONE penalty for all features by a grid of exact fits, which cost the
gradients of 1200 steps at 100 steps of momentum a fit. "batch": minibatches of 5 (digits 8) of each
kind. Held-out log-loss is that of y*(x) on the test set.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, partial
from pathlib import Path

import numpy as np

OUT = Path(os.environ.get("OUT", "out")) / "uses-penalties"
PLACES = ("heart", "digits", "covtype", "ijcnn1", "mnist")
OLD = ("ahead_exact", "ahead_exact_momentum", "sldbo", "ahead_exact_auto")
JOBS = (
    *(("paper", name, False) for name in OLD),
    ("scaled", "ahead_exact", False),
    ("scaled", "ahead_exact_auto", False),
    ("floor", "ahead_exact_auto", False),
    *((units, "ahead_exact_auto", True) for units in ("paper", "scaled", "floor")),
)
OPTIONS = {"paper": {}, "scaled": {"scaled": True}, "floor": {"scaled": True, "floor": 0.01}}
FITS = 39
STEPS = 1200


@cache
def _bench():
    """Imported late: children set their flags first."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from studies.bench import material, tasks

    digits = {name: partial(material.drawn, name, count=600) for name in ("ijcnn1", "mnist")}
    drawn = {
        "heart": tasks._heart,
        "digits": partial(material.drawn, "digits", count=160),
        "covtype": material.covtype,
    } | digits
    split = {name: {"split": "by_group" if name == "heart" else "by_label"} for name in PLACES}
    split["covtype"]["ratios"] = tasks.RARE
    return drawn, split, tasks


def problem(place, units, batch, seed):
    drawn, split, tasks = _bench()
    batch = (8 if place == "digits" else 5) if batch else None
    return tasks.selection(drawn[place], seed, batch, **split[place], **OPTIONS[units])


def held_out_loss(place, seed, w):
    """The mean log-loss of weights on the test set, features divided as in training."""
    data = _bench()[0][place](seed)
    scale = float(np.sqrt(np.mean(data.features**2) * data.features.shape[1]))
    margins = data.test_labels * (data.test_features / scale @ np.asarray(w))
    return float(np.mean(np.logaddexp(0, -margins)))


def run(place, units, name, batch, quick):
    """Tune and judge one method in one place."""
    import jax.numpy as jnp

    from decibo import reference
    from decibo.run.repeat import sharing
    from decibo.run.solve import solve
    from studies.bench import judging, methods, suite, tuning

    began = time.time()
    seeds = range(2 if quick else 5)
    search = tuning.Search(
        2 if quick else 4, 4 if quick else 12, (1000, 1001, 1002)[: 1 if quick else 3]
    )
    _, _, tasks = _bench()
    method = methods.all_methods()[name]
    first, *others = (problem(place, units, batch, s) for s in (*search.seeds, *seeds))
    problems = [first, *(sharing(each, first) for each in others)]
    task = tasks.TASKS[f"l2-{place}" + ("-batch" if batch else "")]
    network = suite.NETWORKS["ring"](first.agents)
    tuned = problems[: len(search.seeds)]
    found = tuning.tune(
        task, method, {"ring": network}, tuned, judging.units(first), search, STEPS
    )["ring"]  # fmt: skip
    rows = []
    for seed, each in zip(seeds, problems[len(search.seeds) :], strict=True):
        made = method.method(found.settings, batch)
        s = solve(each, network, made, steps=STEPS, every=10, measures=judging.MEASURES, seed=seed,
                  progress=False)  # fmt: skip
        phi = judging.points(each, s.history["mean_x"], s.history["mean_y"])["phi"]
        row = {"seed": seed, "sound": s.status.sound, "phi": [float(p) for p in phi]}
        if s.status.sound and np.isfinite(phi[-1]):
            x = jnp.asarray(s.history["mean_x"][-1])
            best = reference(each).y(x)
            w = each.original(x, best) if units != "paper" else best
            row["loss"] = held_out_loss(place, seed, w)
        rows.append(row)
    lost = sum(not np.isfinite(tried["score"]) for tried in found.tried)
    return {
        "place": place, "units": units, "method": name, "batch": batch, "runs": rows,
        "settings": found.settings, "lost": lost, "tried": len(found.tried),
        "seconds": time.time() - began,
    }  # fmt: skip


def sceptic(place, quick):
    """One global penalty by a grid of exact fits; and the lowest Phi that L-BFGS finds."""
    import jax.numpy as jnp
    from scipy.optimize import minimize

    from decibo import reference

    rows = []
    for seed in range(2 if quick else 5):
        plain = problem(place, "paper", False, seed)
        exact = reference(plain)
        one = np.ones(plain.x_layout.size)
        grid = np.linspace(-12, 4, FITS)
        phis = [float(exact.phi(jnp.asarray(g * one))) for g in grid]
        best = grid[int(np.argmin(phis))] * one
        units = reference(problem(place, "scaled", False, seed))

        def value(x, units=units):
            answer = units.at(jnp.asarray(x))
            return float(answer.phi), np.asarray(answer.grad)

        free = minimize(
            value, best, jac=True, method="L-BFGS-B", bounds=[(-16, 6)] * len(one),
            options={"maxiter": 400, "ftol": 1e-11, "gtol": 1e-8},
        )  # fmt: skip
        loss = lambda x, seed=seed, exact=exact: held_out_loss(place, seed, exact.y(jnp.asarray(x)))
        rows.append({"seed": seed, "one": min(phis), "one_loss": loss(best), "lowest": free.fun,
                     "lowest_loss": loss(free.x)})  # fmt: skip
    return {"place": place, "units": "", "method": "sceptic", "batch": False, "runs": rows}


def work(job, quick):
    place, units, name, batch = job
    target = OUT / f"{place}-{units}-{name}{'-batch' if batch else ''}.json"
    if not target.exists():
        found = sceptic(place, quick) if name == "sceptic" else run(*job, quick)
        target.write_text(json.dumps(found))
    return json.loads(target.read_text())


def table(found):
    """The table of all results, as markdown."""
    by = {(r["place"], r["units"], r["method"], r["batch"]): r["runs"] for r in found}
    lost = {(r["place"], r["units"], r["method"], r["batch"]): r for r in found}
    curve = lambda row: np.where(np.isfinite(row["phi"]), row["phi"], np.inf)
    print(
        "| place | one, 39 fits | lowest (L-BFGS) | "
        + " | ".join(
            f"{u} {m.removeprefix('ahead_exact').strip('_') or 'tuned'}{' batch' if b else ''}"
            for u, m, b in JOBS
        )
        + " |"
    )
    print("|" + "---|" * (len(JOBS) + 3))
    for place in PLACES:
        judge = by.get((place, "", "sceptic", False))
        if judge is None or any((place, *job) not in by for job in JOBS[: len(OLD)]):
            continue
        med = lambda key, judge=judge: np.median([row[key] for row in judge])
        cells = [
            f"{med('one'):.4f}, {med('one_loss'):.4f}",
            f"{med('lowest'):.4f}, {med('lowest_loss'):.4f}",
        ]
        low = [
            min(curve(by[place, *job][s]).min() for job in JOBS[: len(OLD)] if by[place, *job][s]["sound"])
            for s in range(len(judge))
        ]  # fmt: skip
        for job in JOBS:
            if (place, *job) not in by:
                cells.append("-")
                continue
            runs = by[place, *job]
            steps = []
            for row, bottom in zip(runs, low, strict=True):
                phi = curve(row)
                there = np.flatnonzero(phi - bottom <= 0.01 * (phi[0] - bottom))
                steps.append(10 * there[0] if row["sound"] and len(there) else np.inf)
            end = np.median([curve(row)[-1] for row in runs])
            loss = np.median([row.get("loss", np.inf) for row in runs])
            diverged = sum(not row["sound"] for row in runs)
            text = f"{end:.4f}, {loss:.4f}, {np.isfinite(steps).sum()}/{len(runs)}"
            text += f" ({np.median(steps):.0f})" if np.isfinite(np.median(steps)) else ""
            text += f", {diverged} diverged" if diverged else ""
            if lost[place, *job].get("tried"):
                text += f", lost {lost[place, *job]['lost']}/{lost[place, *job]['tried']}"
            cells.append(text)
        print(f"| {place} | " + " | ".join(cells) + " |")
    print("\nPhi at the end, held-out log-loss of y*(x), seeds at the hard target (median step).")


def main():
    quick = "--quick" in sys.argv
    OUT.mkdir(parents=True, exist_ok=True)
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["OMP_NUM_THREADS"] = "1"
    jobs = [(place, *job) for job in JOBS for place in PLACES]
    jobs += [(place, "", "sceptic", False) for place in PLACES]
    jobs.sort(key=lambda job: job[2] in ("ahead_exact_auto", "sceptic"))  # the longest first
    if chosen := [word for word in sys.argv[1:] if word in PLACES]:
        jobs = [job for job in jobs if job[0] in chosen]
    found = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=context) as pool:
        for done in as_completed([pool.submit(work, job, quick) for job in jobs]):
            found.append(done.result())
            r = found[-1]
            print(
                r["place"],
                r["units"],
                r["method"],
                r["batch"],
                f"{r.get('seconds', 0):.0f} s",
                file=sys.stderr,
                flush=True,
            )
    table(found)


if __name__ == "__main__":
    main()
