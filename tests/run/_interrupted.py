"""Solves one new problem after another and interrupts each at a random time: by Ctrl-C once, or
twice in quick succession. Prints how each ended."""

import os
import random
import signal
import sys
import threading
import time

import jax.numpy as jnp

import decibo

draw, count, times = random.Random(int(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])


def solve(number, steps):
    scale = 1.0 + number / 7  # another constant: it is compiled again
    outer = lambda x, y, d: jnp.mean((y - d) ** 2) * scale + jnp.sum(x**2)
    inner = lambda x, y, d: jnp.sum((y - x - d) ** 2) * scale
    problem = decibo.Problem(outer, inner, jnp.arange(1.0, 5.0), jnp.zeros(2), jnp.zeros(2))
    method = decibo.ahead_exact(alpha=0.02, gamma=0.05, lam=4.0)
    return decibo.solve(problem, decibo.ring(4), method, steps=steps, every=1000, progress=False)


def interrupt(after, pause, over):
    time.sleep(after)
    for _ in range(times):
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(pause)


solve(0, 10)
begun = time.perf_counter()
solve(1, 1000)
whole = time.perf_counter() - begun
for number in range(count):
    over = threading.Event()
    after, pause = draw.uniform(0, 1.5 * whole), draw.uniform(0, 0.3 * whole)
    thread = threading.Thread(target=interrupt, args=(after, pause, over))
    try:
        try:
            thread.start()
            found = solve(2 + number, 2**31 - 1)
            how = f"{found.status} {len(found.history['step']) > 0}"
        finally:
            over.set()
    except KeyboardInterrupt:
        how = "KeyboardInterrupt"
    thread.join()
    print(how, flush=True)
