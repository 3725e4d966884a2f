"""Every example runs on its own, says what to look at, and prints what its page in the
documentation shows.

The pages show the files of examples/output. To write them again:

    python tests/test_examples.py [NAME ...]      all of them, or those that are named
"""

import contextlib
import io
import runpy
import sys
from pathlib import Path

import jax
import pytest

from helpers import processes
from helpers.variants import daily
from test_docs import agree

FOLDER = Path(__file__).parent.parent / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
# Up to minutes, or in need of PyTorch: other files of tests run parts of them.
LONG = ("hospitals", "label_cleaning", "personalisation", "silos", "text_sources")
SINGLE = 1e-5  # below it, a number is a rounding error of single precision, or the square of one
TESTED = [name for name in NAMES if name not in LONG]


def printed(name, *options):
    """By a process of its own."""
    return processes.printed(FOLDER / f"{name}.py", *options)


def printed_here(name):
    """The same by this process, which has imported JAX already; in single precision, as on a
    command line."""
    text = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        jax.enable_x64(False),
        contextlib.redirect_stdout(text),
    ):
        patch.setattr(sys, "argv", [str(FOLDER / f"{name}.py")])
        runpy.run_path(sys.argv[0], run_name="__main__")
    return text.getvalue()


def output(name):
    return FOLDER / "output" / f"{name}.txt"


def sentences(text):
    """The lines that have words; the others are pictures made of characters, which rounding may
    change."""
    return "\n".join(line for line in text.splitlines() if any(letter.isalpha() for letter in line))


@pytest.mark.parametrize("name", daily(TESTED, "energy_pricing", "hyper_parameters"))
def test_example_prints_what_its_page_shows(name):
    text = printed_here(name)
    assert "Look at:" in text
    assert "nan" not in text.split()
    assert "diverged" not in text
    shown = sentences(output(name).read_text())
    assert agree(shown, sentences(text), about=True, rounding=SINGLE), (
        f"the page shows\n{shown}\nbut it printed\n{text}"
    )


def test_an_example_needs_nothing_but_python():
    assert "Look at:" in printed("energy_pricing", "--quick")


def test_every_example_has_an_output():
    assert sorted(path.stem for path in (FOLDER / "output").glob("*.txt")) == NAMES


if __name__ == "__main__":
    for name in sys.argv[1:] or NAMES:
        output(name).write_text(printed(name))
        print(f"{output(name)} written")
