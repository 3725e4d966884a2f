"""Make docs/performance.md from the JSON of benchmarks/all.py: python benchmarks/page.py FILE
[PAGE]."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pictures

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
LEVELS = ("0.01", "0.0001", "1e-06", "1e-08")

HEAD = """# Performance

What a step costs, how the cost grows, and what everything around the steps adds. In ten sentences:

{summary}

`make bench` measures all of it and prints one table; `python benchmarks/page.py bench.json` makes this page from it.
The two sides of a comparison were measured alternately in one run; ratios are ratios of medians, and the spread is the
middle half of the ratios of consecutive measurements.
"""
CHARTS = {  # drawn by pictures.py from the tables
    "step": (
        "Milliseconds for a step of five methods: decibo, a hand-written JAX loop, numpy and"
        " PyTorch"
    ),
    "growth": "Milliseconds for a step against the number of agents, on three kinds of network",
    "accuracy": "Squared gradient of Phi against the gradients spent, for four methods",
}

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


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def line(row: dict[str, Any]) -> str:
    low = row.get("low")
    high = row.get("high")
    spread = "" if low is None or high is None else f"{number(low)} - {number(high)}"
    verdict = {None: "", True: "met", False: "**missed**"}[row["met"]]
    cells = [
        row["what"],
        f"{number(row['value'])} {row.get('unit', '')}".strip(),
        spread,
        row.get("target", ""),
    ]
    return "| " + " | ".join([*cells, verdict, row.get("note", "")]) + " |"


def table(rows: list[dict[str, Any]]) -> list[str]:
    return ["| | | spread | target | | |", "|---|---|---|---|---|---|", *map(line, rows)]


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


def section(group: str, rows: list[dict[str, Any]]) -> list[str]:
    title, text = TITLES[group]
    steps = [row for row in rows if ": steps to " in row["what"]]
    others = [row for row in rows if row not in steps]
    chart = [f"![{CHARTS[group]}](figures/performance_{group}.svg)", ""] if group in CHARTS else []
    return [
        "",
        f"## {title}",
        "",
        *chart,
        text,
        *(currencies(steps) if steps else [""]),
        *(table(others) if others else []),
    ]


def notes(rows: list[dict[str, Any]]) -> list[str]:
    """What was missed, and what is known about it."""
    file = Path(__file__).parent / "notes.md"
    missed = [row for row in rows if row["met"] is False]
    text = file.read_text().strip() if file.exists() else ""
    listed = [
        f"- {row['what']}: {number(row['value'])} (target {row.get('target', '')})"
        for row in missed
    ]
    return ["", "## What was missed", "", *(listed or ["Nothing."]), "", *([text] if text else [])]


def page(results: dict[str, Any]) -> str:
    rows = results["rows"]
    at = results["machine"]
    judged = [row["met"] for row in rows if row["met"] is not None]
    where = (
        f"{at['processor']}, {at['cores']} cores; jax {at['jax']}, numpy {at['numpy']}, Python"
        f" {at['python']}"
    )
    lines = [HEAD, f"Measured on {where}. {sum(judged)} of {len(judged)} targets met."]
    if results["quick"]:
        lines.append("\nSmall sizes only (--quick): these numbers mean little.")
    for group in TITLES:
        mine = [row for row in rows if row["group"] == group]
        lines += section(group, mine) if mine else []
    lines += ["", (Path(__file__).parent / "gpu.md").read_text().strip()]
    text = "\n".join([*lines, *notes(rows)]) + "\n"
    return text.replace(
        "{summary}", "(too few measurements)" if results["quick"] else pictures.summary(text)
    )


def main() -> None:
    results = json.loads(Path(sys.argv[1]).read_text())
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else PAGE
    target.write_text(page(results))
    if target == PAGE:
        pictures.performance()
    print(f"{target} written from {sys.argv[1]}")


if __name__ == "__main__":
    main()
