"""The tables of the performance study: studies/results/performance.md from performance.json.

README.md has ten sentences and the figures; `summary` computes the sentences, and a test
holds that the page has them.
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

from studies.machine import in_words

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "studies" / "results"
STORED = RESULTS / "performance.json"
LEVELS = ("0.01", "0.0001", "1e-06", "1e-08")
MILLION = "1,000,000 agents"
Rows = list[dict[str, Any]]

HEAD = """# Performance: all tables

This page is generated from [performance.json](performance.json) by `python -m studies.performance --render`; do not edit it.
[The summary](../performance/README.md) has the sentences and the figures, and what was missed.

The two sides of a comparison were measured alternately in one run; ratios are ratios of medians, and the spread is the
middle half of the ratios of consecutive measurements.
"""

TITLES = {
    "step": (
        "A step",
        (
            "Every method of the catalogue against (a) a hand-written jitted scan, (b) numpy with a"
            " loop over agents, (c) PyTorch autograd with a loop over agents, as in the scripts"
            " that accompany papers, and (d) the floor: the matrix-vector passes over the data that"
            " its gradients and products need, timed alone. Logistic regression has the size used"
            " in the paper, 10 agents x 400 samples x 784 features, in single precision. decibo's"
            " time is that of `decibo.solve`, minus that of a run of one step."
        ),
    ),
    "growth": (
        "Growth",
        (
            "AHEAD with x and y of 16 numbers. Memory is the peak of a fresh process above what jax"
            " and a small run need; it includes building the network and compilation."
        ),
    ),
    "sweep": (
        "Sweeps",
        "`decibo.sweep` against one `decibo.solve` after another, compilation included in both.",
    ),
    "overhead": (
        "Around the steps",
        "At the paper's size. Starting is measured in fresh processes.",
    ),
    "accuracy": (
        "Accuracy in every currency",
        (
            "The cost until |grad Phi(xbar)|^2 falls to a fraction of its start and stays there."
            " Every method was tuned with the same budget, as many settings of as many steps, over"
            " alpha, the inner step and what else it has: lam, the weight of SPARKLE's moving"
            " average (1 is none), or the ratio of SLDBO's inner steps. `ahead_exact` and"
            " `sparkle_ed` without moving average follow the same recursion if g is quadratic in y,"
            " so they need the same number of steps; they differ in what a step costs. Gradients"
            " and products are those of all agents; one product is H v and J v at once, and"
            " equivalents count it as long as it takes, in units of a gradient of g measured in the"
            " same run. Bytes are counted over all links, in both directions."
        ),
    ),
    "momentum": (
        "Momentum and Chebyshev rounds",
        (
            "|grad Phi(xbar)|^2 of `ahead_exact` after equal steps on quadratics whose inner level"
            " has this condition number, every row the best of the same grid of 24 pairs (alpha,"
            " gamma)."
        ),
    ),
    "second": (
        "Second derivatives",
        (
            "The inner level is a neural network 784 - 128 - 10; there are four agents. Memory is"
            " what the compiled step needs in addition to state and data."
        ),
    ),
    "peers": (
        "Other libraries",
        "One level only: they have no second. Time of a step, same problem, same ring.",
    ),
}


SUMMARY = """\
- A step of `ahead_exact` at the paper's size takes {step:.1f} ms: {hand:.2f} times a hand-written jitted loop, and
  {passes:.2f} times the bare passes over the data that its gradients need.
- numpy with a loop over the agents takes {numpy:.1f} times as long, PyTorch's autograd {torch:.1f} times; on a small
  problem {small_numpy:.0f} and {small_torch:.0f} times.
- Over the {twins} methods with a hand-written twin, the ratio is {median:.2f} in the median and {worst:.2f} at worst.
- Time grows with the number of links. A step on a ring of a million agents takes {ring:.0f} ms, and the process
  {memory:.1f} GB.
- A random regular graph of a million agents has more links, and they are scattered over memory: {scattered:.0f} ms.
- A sweep of 64 runs is {least:.1f} to {most:.1f} times as fast as the runs one after another, compilation included.
- Recording every 10 steps makes a run {ten:.2f} times as long, every 100 steps {hundred:.2f} times; checkpoints take
  {checkpoints:.1f} % of a run.
- `import decibo` takes {imports:.1f} times as long as `import jax`; the demo shows its first result after {demo:.1f} s.
- To reduce the squared gradient of Phi by a factor of a million, `ahead_exact` needs {exact:,.0f} gradients,
  `sparkle_ed` as much work as {sparkle:,.0f}, and `sldbo` as {sldbo:,.0f}. `ahead` does not get there.
- On a GPU with {many} agents, a step takes {full} times what reading the data takes; with {few} agents,
  {idle} times."""


def summary(results: dict[str, Any]) -> str:
    """Ten sentences with the numbers of the tables."""
    rows = results["rows"]
    of = {row["what"]: row["value"] for row in rows if row["value"] is not None}
    large, small = "logistic 10 x 400 x 784: ", "quadratic 10 x 50 x 50: "
    ending = lambda end: [value for what, value in of.items() if what.endswith(end)]
    hand = [
        value
        for what, value in of.items()
        if what.startswith(large) and what.endswith("/ hand-written scan")
    ]
    saved = ending("64 runs one after another / sweep")
    work = lambda method: spent(rows, method)["1e-06"]
    gpu = results["gpu"]["rows"]
    return SUMMARY.format(
        step=of[f"{large}ahead_exact, a step"],
        hand=of[f"{large}ahead_exact / hand-written scan"],
        passes=of[f"{large}ahead_exact / its passes alone"],
        numpy=of[f"{large}numpy loop / ahead_exact"],
        torch=of[f"{large}PyTorch loop / ahead_exact"],
        small_numpy=of[f"{small}numpy loop / ahead_exact"],
        small_torch=of[f"{small}PyTorch loop / ahead_exact"],
        twins=len(hand),
        median=statistics.median(hand),
        worst=max(hand),
        ring=of[f"ring, {MILLION}: a step"],
        memory=of[f"ring, {MILLION}: peak of the whole process"],
        scattered=of[f"random regular, {MILLION}: a step"],
        least=min(saved),
        most=max(saved),
        ten=of["recording all cheap measures every 10 steps / at the end only"],
        hundred=of["recording all cheap measures every 100 steps / at the end only"],
        checkpoints=of["of a run with checkpoints, spent on them"],
        imports=of["import decibo / import jax"],
        demo=of["demo, seconds to the first result, warm cache"],
        exact=work("ahead_exact"),
        sparkle=work("sparkle_ed"),
        sldbo=work("sldbo"),
        many=f"{gpu[-1]['agents']:,}",
        full=f"{gpu[-1]['ratio']:.2f}",
        few=gpu[0]["agents"],
        idle=f"{gpu[0]['ratio']:.2f}",
    )


def spent(rows: Rows, method: str) -> dict[str, float]:
    """Gradients, or equivalents of them, that a method needs for each level of accuracy."""
    found = {}
    for level in LEVELS:
        what = f"quadratic, {method}: steps to {level}"
        row = next(row for row in rows if row["what"] == what)
        if row["value"] is not None:
            found[level] = row["extra"]["equivalents"]
    return found


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def line(row: dict[str, Any]) -> str:
    low, high = row.get("low"), row.get("high")
    cells = [
        row["what"],
        f"{number(row['value'])} {row.get('unit', '')}".strip(),
        "" if low is None or high is None else f"{number(low)} - {number(high)}",
        row.get("target", ""),
        {None: "", True: "met", False: "**missed**"}[row["met"]],
        row.get("note", ""),
    ]
    return "| " + " | ".join(cells) + " |"


def currencies(rows: list[dict[str, Any]]) -> list[str]:
    """Rows 'problem, method: steps to level' as one table for each problem: a cell has all
    currencies."""
    cells: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows:
        problem, rest = row["what"].split(", ", 1)
        method, level = rest.split(": steps to ")
        spent = row["extra"]
        text = (
            "-"
            if row["value"] is None
            else (
                f"{number(row['value'])} steps, {_work(spent)}, "
                f"{number(spent['bytes'] / 1e3)} kB{_time(spent['seconds'], row['value'])}"
            )
        )
        cells.setdefault(problem, {}).setdefault(method, {})[level] = text
    lines = []
    for problem, methods in cells.items():
        lines += [
            "",
            f"| {problem} | " + " | ".join(f"to {level}" for level in LEVELS) + " |",
            "|---" * 5 + "|",
        ]
        lines += [
            f"| {name} | " + " | ".join(got[level] for level in LEVELS) + " |"
            for name, got in methods.items()
        ]
    return [*lines, ""]


def _work(spent: dict[str, Any]) -> str:
    if not spent["products"]:
        return f"{number(spent['gradients'])} gradients"
    counts = f"{number(spent['gradients'])} gradients + {number(spent['products'])} products"
    return f"{counts} = {number(spent['equivalents'])} equivalents"


def _time(seconds: float, steps: float) -> str:
    """Times of less than a few microseconds a step are noise, and not shown."""
    return f", {number(1e3 * seconds)} ms" if seconds > 5e-6 * steps else ""


def page(results: dict[str, Any]) -> str:
    """All tables as Markdown."""
    rows = results["rows"]
    at = results["machine"]
    judged = [row["met"] for row in rows if row["met"] is not None]
    met = f"{sum(judged)} of {len(judged)} targets met"
    lines = [HEAD, f"Measured {in_words(at)}. {met}."]
    for group, (title, text) in TITLES.items():
        mine = [row for row in rows if row["group"] == group]
        steps = [row for row in mine if ": steps to " in row["what"]]
        others = [row for row in mine if row not in steps]
        if mine:
            lines += ["", f"## {title}", "", text, *(currencies(steps) if steps else [""])]
        if others:
            lines += [
                "| | | spread | target | | |",
                "|---|---|---|---|---|---|",
                *map(line, others),
            ]
    gpu = results["gpu"]
    lines += ["", gpu["about"], ""]
    lines += ["| agents | data, GB | ms a step | floor, ms | ratio |", "|---|---|---|---|---|"]
    for row in gpu["rows"]:
        gigabytes = number(row["data_GB"])
        times = f"{row['ms']:.3g} | {row['floor_ms']:.3g} | {row['ratio']:.2f}"
        lines.append(f"| {row['agents']:,} | {gigabytes} | {times} |")
    lines += ["", "## Notes", "", (Path(__file__).parent / "notes.md").read_text().strip()]
    return "\n".join(lines) + "\n"


def store(results: dict[str, Any]) -> None:
    """Replace the stored results, except for the groups that were not measured, and the GPU's."""
    if results["quick"]:
        raise SystemExit("Results of --quick are not stored.")
    before = json.loads(STORED.read_text())
    measured = {row["group"] for row in results["rows"]}
    kept = [row for row in before["rows"] if row["group"] not in measured]
    stored = results | {"rows": [*results["rows"], *kept], "gpu": before["gpu"]}
    text = json.dumps(stored, indent=1, default=lambda value: value.item())
    STORED.write_text(text + "\n")


def write() -> None:
    """The page and the figures of the documentation, from the stored results."""
    from studies.performance import pictures

    results = json.loads(STORED.read_text())
    (RESULTS / "performance.md").write_text(page(results))
    pictures.performance(results["rows"])
    docs = ROOT / "studies" / "performance" / "README.md"
    text = docs.read_text()
    old = re.search(r"^- A step of.*?(?=\n\n)", text, re.MULTILINE | re.DOTALL)
    if old is not None:
        docs.write_text(text.replace(old[0], summary(results)))
