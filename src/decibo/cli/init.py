"""decibo init: a file to begin with, which runs as it is."""

from __future__ import annotations

from pathlib import Path

from decibo.cli import terminal
from decibo.cli.errors import Exit
from decibo.errors import InputError
from decibo.files import atomic_write, check_writable

TEMPLATE = '''"""What to run: decibo run {name}"""

import jax.numpy as jnp

import decibo


def outer(x, y, d):
    """f_i, what the agent with data d wants of y."""
    return jnp.sum((y - d) ** 2)


def inner(x, y, d):
    """g_i, whose minimum over y is the answer to x."""
    return jnp.sum((y - x) ** 2) + 0.5 * jnp.sum((y + d) ** 2)


# One row for each agent. With make_problem(seed) in place of problem, --seeds changes the data.
data = jnp.array([[1.0, 0.0], [2.0, 1.0], [3.0, 0.0], [2.0, 3.0]])
problem = decibo.Problem(outer, inner, data, x0=jnp.zeros(2), y0=jnp.zeros(2), name="targets")

# Who talks to whom: `decibo list networks` shows more.
network = decibo.ring(4)

# What `decibo run` uses. Without step sizes the agents find them during the run.
method = decibo.ahead_exact()

# What `decibo compare` runs; `decibo list methods` shows all.
methods = [
    decibo.ahead_exact(alpha=0.05, gamma=0.1),
    decibo.ahead(alpha=0.05, gamma=0.1, lam=20.0),
]

# What `decibo sweep` varies.
grid = {{"alpha": [0.02, 0.05], "gamma": [0.1, 0.3]}}

steps = 1000
measures = ["phi", "stationarity", "consensus_x"]  # `decibo list measures`
until = {{"stationarity": 1e-12}}  # end as soon as this is reached
'''


def init(path: Path, as_json: bool) -> int:
    """Write the file, if the name is free."""
    if path.suffix != ".py":
        raise InputError(f"The file must end in .py, but it is {path}.", "For example: mine.py")
    if path.exists() or path.is_symlink():
        raise InputError(f"{path} exists already.", "Choose another name.")
    check_writable(path.parent)
    atomic_write(path, TEMPLATE.format(name=path.name))
    place = terminal.path_of(path)
    if as_json:
        terminal.print_plain_json({"file": place})
    else:
        terminal.say(f"Written to {place}", f"Next: decibo run {place}")
    return Exit.RAN
