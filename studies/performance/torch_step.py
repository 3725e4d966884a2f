"""A step of `ahead_exact` with objectives in PyTorch, against the same steps in a loop written by
hand in PyTorch.

    python -m studies.performance.torch_step [--device cpu|cuda] [--repeats 7] [--agents 8]
        [--json FILE] [--agree] [--pieces | --no-pieces] [--large]

The inner level is a multilayer perceptron on random images of 28 x 28 pixels, x the logarithm of
its weight decay. Both loops take gradients in the same way, for all agents together
(torch.func.vmap) or for one agent after the other (torch.autograd.grad), and hold the agents'
parameters in rows of one matrix, as a careful user would for mixing. What is compared is the
compiled loop around the gradients, and what it takes to hand arrays over. The loops are run in
turn; a ratio is that of the medians, with that of the processor's seconds (all threads) beside it,
from which those of a run of one step are taken off, since it is prepared in the same way. The last
parameters of both must agree, or the row is an error.

--agree compares instead, in double precision, 50 steps with objectives in PyTorch and in JAX: a
quadratic, and a network with one hidden layer.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

import decibo
from decibo.errors import first_line
from decibo.integrations import pytorch as bridge
from studies.performance.timing import Row

ALPHA, GAMMA, LAM = 0.01, 0.05, 10.0
CASES = {  # layers between 784 pixels and 10 classes, images of an agent
    "101,770 weights, 64 images": ((128,), 64),
    "101,770 weights, 256 images": ((128,), 256),
    "669,706 weights, 64 images": ((512, 512), 64),
    "669,706 weights, 256 images": ((512, 512), 256),
}
LARGE = {"20,037,642 weights, 1,024 images": ((4096, 4096), 1024)}  # for a GPU
Variables = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Make = Callable[..., decibo.Problem]  # bridge.problem, with or without pieces


class Task:
    """The two objectives of one agent, the data of all, and the parameters to start from."""

    def __init__(self, layers: tuple[int, ...], images: int, agents: int, device: str):
        torch.manual_seed(0)
        sizes = (784, *layers, 10)
        parts = [
            m
            for a, b in itertools.pairwise(sizes)
            for m in (torch.nn.Linear(a, b), torch.nn.Tanh())
        ]
        self.model = torch.nn.Sequential(*parts[:-1]).to(device)
        self.device = device
        rows = {
            name: torch.randn(agents, images, 784, device=device)
            for name in ("training", "checked")
        }
        labels = {
            f"{name} labels": torch.randint(0, 10, (agents, images), device=device) for name in rows
        }
        self.data = rows | labels
        self.agents = agents

    def loss(
        self, y: dict[str, torch.Tensor], d: dict[str, torch.Tensor], name: str
    ) -> torch.Tensor:
        scores = torch.func.functional_call(self.model, y, d[name])
        return torch.nn.functional.cross_entropy(scores, d[f"{name} labels"])

    def outer(
        self, x: torch.Tensor, y: dict[str, torch.Tensor], d: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        return self.loss(y, d, "checked") + 0 * x

    def inner(
        self, x: torch.Tensor, y: dict[str, torch.Tensor], d: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        return self.loss(y, d, "training") + torch.exp(x) * sum(
            torch.sum(part**2) for part in y.values()
        )


class ByHand:
    """`ahead_exact` as a user of PyTorch would write it, with the parameters of an agent in a
    row."""

    def __init__(self, task: Task, W: np.ndarray, together: bool):
        self.task = task
        self.together = together
        self.half = torch.tensor((np.eye(len(W)) + W) / 2, dtype=torch.float32, device=task.device)
        named = dict(task.model.named_parameters())
        self.names = list(named)
        self.shapes = [part.shape for part in named.values()]
        self.sizes = [part.numel() for part in named.values()]
        self.y0 = torch.cat([part.detach().ravel() for part in named.values()]).repeat(
            task.agents, 1
        )
        losses = (task.outer, task.inner)
        self.mapped = {
            loss: torch.func.vmap(torch.func.grad(loss, argnums=(0, 1))) for loss in losses
        }

    def tree(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        parts = torch.split(rows, self.sizes, dim=-1)
        return {
            name: part.reshape(*rows.shape[:-1], *shape)
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }

    def gradient(
        self, loss: Callable[..., torch.Tensor], x: torch.Tensor, y: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self.together:
            in_x, in_y = self.mapped[loss](x, self.tree(y), self.task.data)
            return in_x, torch.cat([in_y[name].flatten(1) for name in self.names], dim=1)
        in_x, in_y = torch.empty_like(x), torch.empty_like(y)
        for i in range(self.task.agents):
            own_x, own_y = (part[i].detach().requires_grad_() for part in (x, y))
            value = loss(
                own_x, self.tree(own_y), {name: part[i] for name, part in self.task.data.items()}
            )
            in_x[i], in_y[i] = torch.autograd.grad(value, (own_x, own_y))
        return in_x, in_y

    def __call__(self, steps: int) -> Variables:
        x = torch.full((self.task.agents,), -5.0, device=self.task.device)
        y, z = self.y0.clone(), self.y0.clone()
        memory = [torch.zeros_like(part) for part in (x, y, z)]
        for _ in range(steps):
            f_x, f_y = self.gradient(self.task.outer, x, (y + z) / 2)
            g_x, g_y = self.gradient(self.task.inner, x, y)
            h_x, h_y = self.gradient(self.task.inner, x, z)
            directions = f_x + LAM / 2 * (g_x - h_x), g_y + f_y / LAM, h_y - f_y / LAM
            moved = [
                s - h * d
                for s, h, d in zip((x, y, z), (ALPHA, GAMMA, GAMMA), directions, strict=True)
            ]
            x, y, z = (self.half @ (p + c) for p, c in zip(moved, memory, strict=True))
            memory = [s - p for s, p in zip((x, y, z), moved, strict=True)]
        if self.task.device != "cpu":
            torch.cuda.synchronize()
        return x, y, z


def quadratic() -> tuple[decibo.Problem, tuple[Any, ...]]:
    """A quadratic in JAX, and what makes the same one in PyTorch."""
    problem = decibo.problems.quadratic(agents=4)

    def outer(x: torch.Tensor, y: torch.Tensor, d: dict[str, torch.Tensor]) -> torch.Tensor:
        curved = 0.5 * x @ d["P"] @ x + x @ d["B"] @ y + 0.5 * y @ d["A"] @ y
        return curved + d["p"] @ x + d["q"] @ y

    def inner(x: torch.Tensor, y: torch.Tensor, d: dict[str, torch.Tensor]) -> torch.Tensor:
        return 0.5 * y @ d["H"] @ y + x @ d["J"] @ y + d["s"] @ y

    data = jax.tree.map(lambda leaf: torch.tensor(np.asarray(leaf)), problem.data)
    return problem, (outer, inner, data, torch.zeros(3).double(), torch.zeros(4).double())


def perceptron(device: str) -> tuple[decibo.Problem, tuple[Any, ...]]:
    """A network with one hidden layer in JAX, and what makes the same one in PyTorch."""
    task = Task((16,), 32, 4, device)
    task.model = task.model.double()
    task.data = {
        name: part.double() if part.is_floating_point() else part
        for name, part in task.data.items()
    }

    def loss(y: dict[str, jax.Array], d: dict[str, jax.Array], name: str) -> jax.Array:
        hidden = jnp.tanh(d[name] @ y["0.weight"].T + y["0.bias"])
        logits = jax.nn.log_softmax(hidden @ y["2.weight"].T + y["2.bias"])
        return -jnp.mean(jnp.take_along_axis(logits, d[f"{name} labels"][:, None], axis=1))

    def inner(x: jax.Array, y: dict[str, jax.Array], d: dict[str, jax.Array]) -> jax.Array:
        return loss(y, d, "training") + jnp.exp(x) * sum(jnp.sum(part**2) for part in y.values())

    data, y0 = bridge.arrays(task.data), bridge.arrays(task.model)
    problem = decibo.Problem(lambda x, y, d: loss(y, d, "checked"), inner, data, -5.0, y0)
    return problem, (task.outer, task.inner, task.data, -5.0, task.model)


def agreement(make: Make, device: str, steps: int = 50) -> Iterator[Row]:
    """How far apart PyTorch and JAX are after some steps, and how far both have come."""
    jax.config.update("jax_enable_x64", True)
    method = decibo.ahead_exact(alpha=0.05, gamma=0.1, lam=10.0)
    furthest = lambda one, other: max(
        float(np.abs(np.asarray(a) - np.asarray(b)).max())
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )
    for name, (problem, given) in {
        "quadratic": quadratic(),
        "perceptron": perceptron(device),
    }.items():
        solve = lambda problem: decibo.solve(
            problem, decibo.ring(4), method, steps=steps, measures=["inner"]
        )
        in_jax = solve(problem)
        for together, way in ((True, "together"), (False, "one by one")):
            in_torch = solve(make(*given, together=together, device=device))
            both = [(run.agents.x, run.agents.y) for run in (in_torch, in_jax)]
            moved = furthest(in_jax.y, problem.y0)
            yield Row(
                "torch",
                f"{name}, {way}",
                furthest(*both),
                "",
                target="<= 1e-6",
                note=f"y moved by {moved:.2g}",
            )


def measured(
    make: Make, task: Task, together: bool, steps: int, repeats: int
) -> dict[str, list[tuple[float, float]]]:
    """Seconds and processor seconds of all steps: by hand, by decibo, and by decibo in a run of one
    step."""
    network = decibo.ring(task.agents)
    by_hand = ByHand(task, network.W, together)
    problem = make(
        task.outer,
        task.inner,
        task.data,
        x0=-5.0,
        y0=task.model,
        together=together,
        device=task.device,
    )
    method = decibo.ahead_exact(alpha=ALPHA, gamma=GAMMA, lam=LAM)
    solve = lambda steps: decibo.solve(
        problem, network, method, steps=steps, every=steps, measures=["consensus_x"]
    )
    found = solve(steps)
    wanted = by_hand.tree(by_hand(steps)[1])
    apart = max(
        float(abs(found.agents.y[name] - wanted[name].cpu().numpy()).max()) for name in wanted
    )
    assert apart < 1e-4, apart
    times: dict[str, list[tuple[float, float]]] = {"by hand": [], "decibo": [], "one step": []}
    for _ in range(repeats):
        begun, used = time.perf_counter(), time.process_time()
        by_hand(steps)
        times["by hand"].append((time.perf_counter() - begun, time.process_time() - used))
        for name, count in (("decibo", steps), ("one step", 1)):
            used = time.process_time()
            seconds = solve(count).cost.seconds
            times[name].append((seconds, time.process_time() - used))
    return times


def row_of(what: str, times: dict[str, list[tuple[float, float]]], steps: int) -> Row:
    """The ratio of medians, how far single neighbours are from it, and the same of the processor's
    seconds."""
    ratios = sorted(
        mine[0] / its[0] for mine, its in zip(times["decibo"], times["by hand"], strict=True)
    )
    middle = {
        who: [statistics.median(part) for part in zip(*pair, strict=True)]
        for who, pair in times.items()
    }
    value = middle["decibo"][0] / middle["by hand"][0]
    used = (
        (middle["decibo"][1] - middle["one step"][1]) / (steps - 1) / (middle["by hand"][1] / steps)
    )
    each = {who: 1e3 * pair[0] / steps for who, pair in middle.items()}
    note = f"{each['decibo']:.1f} against {each['by hand']:.1f} ms; processor {used:.2f}"
    return Row("torch", what, value, "x", ratios[0], ratios[-1], "<= 1.15", note)


def rows(
    make: Make,
    cases: dict[str, tuple[tuple[int, ...], int]],
    device: str,
    agents: int,
    steps: int,
    repeats: int,
) -> Iterator[Row]:
    """One row for each case and each way to take the agents."""
    for name, (layers, images) in cases.items():
        task = Task(layers, images, agents, device)
        for together, way in ((True, "together"), (False, "one by one")):
            try:
                yield row_of(
                    f"{name}, {way}", measured(make, task, together, steps, repeats), steps
                )
            except Exception as error:
                yield Row(
                    "torch",
                    f"{name}, {way}",
                    None,
                    note=f"{type(error).__name__}: {first_line(error)}",
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--pieces",
        action=argparse.BooleanOptionalAction,
        help="steps in compiled pieces, with torch in between",
    )
    parser.add_argument("--large", action="store_true", help="one network of 20 million weights")
    parser.add_argument("--agree", action="store_true", help="compare numbers, not times")
    given = parser.parse_args()
    found: list[dict[str, Any]] = []
    print(
        f"{given.agents} agents, torch {torch.__version__} on {given.device} with"
        f" {torch.get_num_threads()} threads, jax {jax.__version__} on"
        f" {jax.devices()[0].device_kind}"
    )
    make = partial(bridge.problem, pieces=given.pieces)
    chosen = (
        agreement(make, given.device)
        if given.agree
        else rows(
            make,
            LARGE if given.large else CASES,
            given.device,
            given.agents,
            given.steps,
            given.repeats,
        )
    )
    for row in chosen:
        print(row, flush=True)
        found.append(row.as_dict())
        if given.json:  # nothing is lost if a later row takes too long
            given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
