"""Draw the pictures of the documentation: python benchmarks/pictures.py [front | performance].

front          docs/figures/front.svg, from runs of two of the examples
performance    docs/figures/performance_*.svg, from the tables of docs/performance.md
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams |= {
    "svg.hashsalt": "decibo",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

DOCS = Path(__file__).parent.parent / "docs"
FIGURES = DOCS / "figures"
TEAL = "#00897b"
GREY = "#90a4ae"
COLOURS = (TEAL, "#5e35b1", "#fb8c00", GREY)
ROW = re.compile(r"^\| ([^|]+?) \| ([\d.,e+-]+)[^|]*\|", re.MULTILINE)
MILLION = "1,000,000 agents"


def rows(page: str) -> dict[str, float]:
    """The numbers of the page's tables, by the words in front of them."""
    return {
        what: float(value.replace(",", ""))
        for what, value in ROW.findall(page)
        if re.search(r"\d", value)
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


def summary(page: str) -> str:
    """The page in ten sentences, with the numbers of its tables."""
    of = rows(page)
    large, small = "logistic 10 x 400 x 784: ", "quadratic 10 x 50 x 50: "
    hand = [
        value
        for what, value in of.items()
        if what.startswith(large) and what.endswith("/ hand-written scan")
    ]
    saved = [
        value for what, value in of.items() if what.endswith("64 runs one after another / sweep")
    ]
    gpu = re.findall(
        r"^\| ([\d,]+) \| [\d.]+ \| [\d.]+ \| [\d.]+ \| ([\d.]+) \|$", page, re.MULTILINE
    )
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
        exact=_cells(page, "ahead_exact")["1e-06"],
        sparkle=_cells(page, "sparkle_ed")["1e-06"],
        sldbo=_cells(page, "sldbo")["1e-06"],
        many=gpu[-1][0],
        full=gpu[-1][1],
        few=gpu[0][0],
        idle=gpu[0][1],
    )


def _cells(page: str, method: str) -> dict[str, float]:
    """Gradients, or equivalents of them, that a method needs for each level of accuracy."""
    header = re.search(r"^\| quadratic \| (to .*) \|$", page, re.MULTILINE)
    line = re.search(rf"^\| {re.escape(method)} \| (.*steps.*) \|$", page, re.MULTILINE)
    if header is None or line is None:
        raise ValueError(f"The page has no table of accuracies with {method}.")
    levels = [cell.strip().removeprefix("to ") for cell in header[1].split("|")]
    found = {}
    for level, cell in zip(levels, line[1].split("|"), strict=True):
        work = re.search(r"= ([\d,]+) equivalents", cell) or re.search(r"([\d,]+) gradients", cell)
        if work is not None:
            found[level] = float(work[1].replace(",", ""))
    return found


def step(page: str) -> Figure:
    of = rows(page)
    names = ("ahead_exact", "ahead", "sparkle_ed", "d_soba", "sldbo")
    figure, axes = plt.subplots(figsize=(8, 3.6))
    kinds = (
        "decibo",
        "hand-written JAX loop",
        "numpy, loop over agents",
        "PyTorch, loop over agents",
    )
    for place, (kind, colour) in enumerate(zip(kinds, COLOURS, strict=True)):
        times = []
        for name in names:
            base = of[f"logistic 10 x 400 x 784: {name}, a step"]
            ratios = (
                1.0,
                1 / of[f"logistic 10 x 400 x 784: {name} / hand-written scan"],
                of[f"logistic 10 x 400 x 784: numpy loop / {name}"],
                of[f"logistic 10 x 400 x 784: PyTorch loop / {name}"],
            )
            times.append(base * ratios[place])
        axes.barh(
            [row + 0.2 * place for row in range(len(names))],
            times,
            height=0.18,
            color=colour,
            label=kind,
        )
    axes.set_yticks([row + 0.3 for row in range(len(names))], names)
    axes.invert_yaxis()
    axes.set_xlabel("ms for a step of 10 agents with 400 samples of 784 features")
    axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=4)
    return figure


def growth(page: str) -> Figure:
    of = rows(page)
    figure, axes = plt.subplots(figsize=(8, 3.6))
    for name, colour in zip(("ring", "torus", "random regular"), COLOURS, strict=False):
        found = {
            count: of.get(f"{name}, {count:,} agents: a step")
            for count in (10**power for power in range(1, 7))
        }
        axes.loglog(list(found), list(found.values()), "o-", color=colour, label=name)
    axes.set_xlabel("agents")
    axes.set_ylabel("ms for a step")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    return figure


def accuracy(page: str) -> Figure:
    figure, axes = plt.subplots(figsize=(8, 3.6))
    for name, colour in zip(("ahead_exact", "sparkle_ed", "sldbo", "ahead"), COLOURS, strict=True):
        found = _cells(page, name)
        axes.loglog(
            list(found.values()), [float(level) for level in found], "o-", color=colour, label=name
        )
    axes.set_xlabel(
        "gradients of all agents; a product with second derivatives counts as long as it takes"
    )
    axes.set_ylabel("squared gradient of Phi,\nas a fraction of its start")
    axes.legend(frameon=False, loc="lower left")
    axes.grid(alpha=0.3)
    return figure


def front() -> Figure:
    """Who talks to whom, how close two methods come to the best prices of
    examples/energy_pricing.py, and the trust in right and wrong labels that
    examples/data_cleaning.py finds.
    """
    import jax
    import numpy as np

    import decibo

    jax.config.update("jax_enable_x64", True)
    figure, (left, middle, right) = plt.subplots(
        1, 3, figsize=(11.5, 3.3), width_ratios=(0.8, 1.2, 1.2)
    )
    _clinics(left)

    pricing = decibo.problems.stackelberg_pricing(agents=10, hours=24)
    network = decibo.networks.small_world(10, 4, 0.3, seed=0)
    settings = {"alpha": 0.1, "gamma": 0.1, "lam": 20.0}
    for method, colour in (
        (decibo.ahead(**settings), GREY),
        (decibo.ahead_exact(**settings), TEAL),
    ):
        end = decibo.solve(pricing, network, method, steps=1000, every=10, measures=["distance_x"])
        middle.semilogy(
            end.history["step"], end.history["distance_x"] ** 0.5, color=colour, linewidth=2
        )
        middle.annotate(method.name, (700, 4 * end.history["distance_x"][70] ** 0.5), color=colour)
    middle.set_title("distance to the best prices of ten districts", fontsize=10)
    middle.set_xlabel("step")
    middle.grid(alpha=0.3)

    labels = decibo.problems.hyper_cleaning(agents=5, training=200, validation=200, corruption=0.3)
    wrong = np.asarray(decibo.problems.hyper_cleaning_mask(labels))
    cleaning = decibo.ahead_exact(alpha=100.0, gamma=0.5, lam=100.0)
    end = decibo.solve(labels, decibo.ring(5), cleaning, steps=4000, every=4000, measures=["outer"])
    trust = np.asarray(jax.nn.sigmoid(end.x))
    bins = np.linspace(0, 1, 21)
    right.hist(
        [trust[~wrong], trust[wrong]],
        bins,
        color=[TEAL, COLOURS[2]],
        label=["right labels", "wrong labels"],
    )
    right.set_title("trust that five clinics learned to put in labels", fontsize=10)
    right.set_xlabel("trust")
    right.set_ylabel("training samples")
    right.legend(frameon=False, loc="upper center")
    figure.tight_layout()
    return figure


def _clinics(axes) -> None:
    """A ring of five clinics, each with its own data."""
    import networkx

    ring = networkx.cycle_graph(5)
    places = networkx.circular_layout(ring)
    networkx.draw_networkx_edges(ring, places, ax=axes, edge_color=GREY, width=2)
    networkx.draw_networkx_nodes(ring, places, ax=axes, node_color=TEAL, node_size=900)
    names = {clinic: f"data {clinic + 1}" for clinic in ring}
    networkx.draw_networkx_labels(ring, places, names, ax=axes, font_color="white", font_size=7)
    axes.text(0, 0, "variables travel,\ndata stay", ha="center", va="center")
    axes.set_title("neighbours talk to neighbours", fontsize=10)
    axes.axis("off")
    axes.set_aspect("equal")
    axes.margins(0.2)


def save(figure: Figure, name: str) -> None:
    target = FIGURES / f"{name}.svg"
    figure.savefig(target, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    print(f"{target} written")


def performance() -> None:
    page = (DOCS / "performance.md").read_text()
    charts: tuple[Callable[[str], Figure], ...] = (step, growth, accuracy)
    for chart in charts:
        save(chart(page), f"performance_{chart.__name__}")


def main() -> None:
    wanted = sys.argv[1:] or ["front", "performance"]
    if "front" in wanted:
        save(front(), "front")
    if "performance" in wanted:
        performance()


if __name__ == "__main__":
    main()
