"""Break runs on purpose, many times and in many ways, and count what went wrong. Every count should
be zero.

    python benchmarks/faults.py [SECTION ...] [--count N] [--seed 0] [--json FILE] [--verbose]

Without names all sections are run. A section is a file in benchmarks/drills/ with a function

    def cases(count: int, seed: int, folder: Path) -> Iterator[Outcome]

that yields one outcome for each case it tried (`from faults import Outcome`). The table counts, for
each section:

    lost       a result, or more than the steps since the last checkpoint, was lost
    leaked     something was left behind: a process, a file, or data of another process
    hung       it did not end within the promised time
    wrong      it ended with another exit code, another message or other numbers than promised
    traceback  it ended in a traceback, a C++ stack or "please report it" instead of a sentence
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).parent
COLUMNS = ("lost", "leaked", "hung", "wrong", "traceback")


@dataclass(frozen=True)
class Outcome:
    """What came of one case; the flags are what must not happen."""

    case: str
    lost: bool = False
    leaked: bool = False
    hung: bool = False
    wrong: bool = False
    traceback: bool = False
    detail: str = ""
    seconds: float = 0.0

    @property
    def bad(self) -> bool:
        """Whether anything went wrong."""
        return any(getattr(self, name) for name in COLUMNS)


def sections() -> list[str]:
    """The names of all sections."""
    return sorted(path.stem for path in (HERE / "drills").glob("[!_]*.py"))


def run(name: str, count: int, seed: int) -> Iterator[Outcome]:
    """The outcomes of one section, as they come."""
    module = importlib.import_module(f"drills.{name}")
    with tempfile.TemporaryDirectory(prefix="decibo-faults-") as folder:
        yield from module.cases(count, seed, Path(folder))


def row(name: str, outcomes: Iterable[Outcome], seconds: float) -> str:
    """A line of the table."""
    listed = list(outcomes)
    counts = "".join(f"{sum(getattr(each, column) for each in listed):11}" for column in COLUMNS)
    return f"{name:16}{len(listed):7}{counts}{seconds:8.0f} s"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(sections()))
    parser.add_argument("--count", type=int, default=20, help="cases in each section")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--verbose", action="store_true", help="a line for each case, not only for bad ones"
    )
    options = parser.parse_args()
    unknown = set(options.sections) - set(sections())
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(sections())}")
    lines = [
        f"{'section':16}{'cases':>7}{''.join(f'{column:>11}' for column in COLUMNS)}{'time':>10}"
    ]
    records = {}
    for name in options.sections or sections():
        begun = time.perf_counter()
        outcomes = []
        for outcome in run(name, options.count, options.seed):
            outcomes.append(outcome)
            if outcome.bad or options.verbose:
                flags = [column for column in COLUMNS if getattr(outcome, column)]
                verdict = ", ".join(flags).upper() or "fine"
                print(
                    f"  {name}: {outcome.case}: {verdict} ({outcome.seconds:.1f} s)"
                    f" {outcome.detail}",
                    flush=True,
                )
        lines.append(row(name, outcomes, time.perf_counter() - begun))
        records[name] = [asdict(outcome) for outcome in outcomes]
    print("\n".join(lines))
    if options.json:
        options.json.write_text(json.dumps(records, indent=1))
    return int(any(Outcome(**each).bad for listed in records.values() for each in listed))


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    sys.modules["faults"] = sys.modules["__main__"]  # sections import Outcome from here
    sys.exit(main())
