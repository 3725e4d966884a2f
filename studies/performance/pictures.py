"""The pictures of the documentation.

python -m studies.performance.pictures      docs/figures/front.svg, from examples/energy_pricing.py
python -m studies.performance --render      docs/figures/performance_*.svg, from the stored results
"""

from __future__ import annotations

from collections.abc import Callable

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

from studies.performance.page import ROOT, Rows, spent  # noqa: E402

FIGURES = ROOT / "docs" / "figures"
TEAL = "#00897b"
GREY = "#90a4ae"
COLOURS = (TEAL, "#5e35b1", "#fb8c00", GREY)


def values(rows: Rows) -> dict[str, float]:
    """The numbers of the tables, by the words in front of them."""
    return {row["what"]: row["value"] for row in rows if row["value"] is not None}


def step(rows: Rows) -> Figure:
    of = values(rows)
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


def growth(rows: Rows) -> Figure:
    of = values(rows)
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


def accuracy(rows: Rows) -> Figure:
    figure, axes = plt.subplots(figsize=(8, 3.6))
    for name, colour in zip(("ahead_exact", "sparkle_ed", "sldbo", "ahead"), COLOURS, strict=True):
        found = spent(rows, name)
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
    """Who sends to whom, and how close two methods come to the best prices of
    examples/energy_pricing.py.
    """
    import jax

    import decibo

    jax.config.update("jax_enable_x64", True)
    figure, (left, middle) = plt.subplots(1, 2, figsize=(9, 3.3), width_ratios=(0.8, 1.7))
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
    figure.tight_layout()
    return figure


def _clinics(axes) -> None:
    """A ring of five agents, each with its own data."""
    import networkx

    ring = networkx.cycle_graph(5)
    places = networkx.circular_layout(ring)
    networkx.draw_networkx_edges(ring, places, ax=axes, edge_color=GREY, width=2)
    networkx.draw_networkx_nodes(ring, places, ax=axes, node_color=TEAL, node_size=900)
    names = {clinic: f"data {clinic + 1}" for clinic in ring}
    networkx.draw_networkx_labels(ring, places, names, ax=axes, font_color="white", font_size=7)
    axes.text(0, 0, "variables travel,\ndata stay", ha="center", va="center")
    axes.set_title("agents send to their neighbours", fontsize=10)
    axes.axis("off")
    axes.set_aspect("equal")
    axes.margins(0.2)


def save(figure: Figure, name: str) -> None:
    target = FIGURES / f"{name}.svg"
    figure.savefig(target, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    print(f"{target} written")


def performance(rows: Rows) -> None:
    charts: tuple[Callable[[Rows], Figure], ...] = (step, growth, accuracy)
    for chart in charts:
        save(chart(rows), f"performance_{chart.__name__}")


if __name__ == "__main__":
    save(front(), "front")
