"""How long the report page of 20 runs of 1,000 points takes to write, and to open in a headless
Chromium.

python benchmarks/report.py [runs] [points]
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import decibo
from decibo.report import report, write_run

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
TIMES = 5
# When the page has set itself up, and when that has been painted.
READY = """() => new Promise(done => {
  const paint = () => performance.getEntriesByName('first-contentful-paint')[0];
  const wait = () => document.documentElement.dataset.ready && paint()
    ? requestAnimationFrame(() => setTimeout(() => done(performance.now())))
    : setTimeout(wait, 5);
  wait();
})"""


def folders(folder: Path, runs: int, points: int) -> Path:
    problem = decibo.problems.quadratic()
    network = decibo.ring(10)
    method = decibo.ahead_exact(alpha=0.05, gamma=0.1)
    solution = decibo.solve(problem, network, method, steps=points - 1, every=1, measures=["all"])
    random = np.random.default_rng(0)
    for k in range(runs):
        noisy = lambda values: values * np.exp(0.1 * random.normal(size=len(values)))
        history = {name: noisy(values) for name, values in solution.history.items()}
        changed = dataclasses.replace(
            solution, history=history | {"step": solution.history["step"]}
        )
        write_run(folder / f"{k:03}", changed, problem, network, method, label=f"run {k}")
    return folder


def main() -> None:
    runs, points = (int(each) for each in sys.argv[1:] + ["20", "1000"][len(sys.argv) - 1 :])
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        written = folders(Path(folder) / "runs", runs, points)
        before = time.perf_counter()
        page_path = report(written, Path(folder) / "report.html")
        print(f"{runs} runs of {points} points, {page_path.stat().st_size / 1e6:.2f} MB")
        print(f"written in {time.perf_counter() - before:.2f} s")
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=ARGUMENTS
        )
        opened, changed = zip(*(open_page(chromium, page_path) for _ in range(TIMES)), strict=True)
        chromium.close()
    print(
        f"opened and painted in {np.median(opened):.2f} s (median of {TIMES}, worst"
        f" {max(opened):.2f} s)"
    )
    print(f"another measure drawn in {np.median(changed) * 1e3:.0f} ms")


def open_page(chromium, path: Path) -> tuple[float, float]:
    """Seconds from the start of the navigation until everything is painted, and to draw another
    measure."""
    page = chromium.new_page()
    page.goto(path.as_uri())
    opened = page.evaluate(READY) / 1e3
    change = """() => { const t = performance.now(), s = document.getElementById('measure');
      s.selectedIndex = 3; s.dispatchEvent(new Event('change')); return performance.now() - t; }"""
    changed = page.evaluate(change) / 1e3
    page.close()
    return opened, changed


if __name__ == "__main__":
    main()
