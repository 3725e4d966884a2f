"""Measure the rates of Corollaries 1 and 2: python benchmarks/rates.py [--fast]."""

import argparse
import time

import jax

jax.config.update("jax_enable_x64", True)

from decibo.paper import rate_study as rates  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="stop at K = 10,000")
    fast = parser.parse_args().fast
    began = time.perf_counter()
    curves = rates.slopes(rates.KS[:3] if fast else rates.KS)
    print(rates.table(curves, rates.ranges(), rates.effects()))
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
