"""Every code block of the documentation runs, and prints what the page says it prints.

Blocks of a page run in order in one namespace. A ```text block right after a ```python block is its
output: words must agree, numbers to 2 %, after ```text about to a factor of 5. Numbers at rounding
level, which differ between processors and numbers of threads, count as zero: below 1e-10 in double
precision. ```python no-run blocks are only compiled.

    python tests/test_docs.py docs/how-to/data_and_network.md                 update the numbers in the outputs of a page
    python tests/test_docs.py docs/how-to/data_and_network.md --words 42      and the words of the output at line 42

Only numbers are updated unless a line is named: an output whose words change may no longer support
the text around it, so somebody has to read both.
"""

import argparse
import contextlib
import io
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.variants import daily

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
# Explanations repeat what tests/theory and tests/algorithm prove; the others train models or start
# processes. They run in `make test-all`.
SLOW = ("coming-from", "explanation/", "how-to/deep_learning", "how-to/estimators", "silos")


def in_docs(page):
    return page.relative_to(DOCS).as_posix()


DAILY = [page for page in PAGES if not in_docs(page).startswith(SLOW)]
BLOCK = re.compile(
    r"```(python(?: no-run)?)\n(.*?)```(?:\n+```text( about)?\n(.*?)```)?", re.DOTALL
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:,\d{3})*(?:\.\d*)?(?:e[-+]?\d+)?", re.IGNORECASE)
# (1.3 ± 1.1)e-29 is a mean and a deviation that share a power of ten
SHARED_POWER = re.compile(r"\(([^()±\s]+) ± ([^()±\s]+)\)e([-+]?\d+)")
ROUNDING = 1e-10  # in double precision, of problems whose numbers are about 1


def run(text, name):
    """(block, output) of every block that runs."""
    namespace = {"__name__": "page"}
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        code = compile("\n" * line + match[2], name, "exec")  # errors name the line of the page
        if "no-run" in match[1]:
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        yield match, printed.getvalue()


def words(text):
    return NUMBER.sub("#", plain(text)).split()


def numbers(text):
    return [float(number.replace(",", "")) for number in NUMBER.findall(plain(text))]


def plain(text):
    """Numbers as Python writes them: (1.3 ± 1.1)e-29 becomes 1.3e-29 ± 1.1e-29."""
    return SHARED_POWER.sub(r"\1e\3 ± \2e\3", text.replace("\N{MINUS SIGN}", "-"))


def close(one, other, share, rounding):
    size = max(abs(one), abs(other))
    return abs(one - other) <= share * size or size < rounding


def agree(shown, printed, about, rounding=ROUNDING):
    """Whether words agree, and numbers nearly or because both are rounding errors."""
    pairs = zip(numbers(shown), numbers(printed), strict=False)
    return words(shown) == words(printed) and all(
        close(*pair, 0.8 if about else 0.02, rounding) for pair in pairs
    )


def test_numbers_at_rounding_level_agree():
    assert agree("(1.3 ± 1.1)e-29  1 ms", "(8.5 ± 8.3)e-30  1 ms", about=False)
    assert agree("end (1.3 ± 1.1)e\N{MINUS SIGN}29", "end 0 ± 0", about=False)
    assert not agree("(1.3 ± 1.1)e-2", "(8.5 ± 8.3)e-30", about=True)
    assert not agree("(1.3 ± 1.1)e-2", "(1.3 ± 1.1)e-3", about=True)
    assert agree("(1.3 ± 1.1)e-2", "0.013 ± 0.011", about=False)


@pytest.mark.parametrize("page", daily(PAGES, *DAILY), ids=in_docs)
def test_blocks_run_and_print_what_the_page_says(page):
    for match, printed in run(page.read_text(), str(page)):
        shown = match[4]
        assert shown is None or agree(shown, printed, match[3]), (
            f"the page says\n{shown}\nbut it printed\n{printed}"
        )


def test_links_lead_somewhere():
    broken = broken_links(PAGES)
    assert not broken, "\n".join(broken)


def broken_links(pages):
    """Links of pages, those of the studies too, to no file or no heading."""
    broken = []
    for page in pages:
        for link in LINK.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
            target, _, anchor = link.partition("#")
            file = (page.parent / target).resolve() if target else page
            if "://" in link or (file.exists() and (not anchor or anchor in anchors(file))):
                continue
            broken.append(f"{page.relative_to(ROOT)}: {link}")
    return broken


def anchors(page):
    """What headings are called in links."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


ARCHITECTURE = DOCS / "explanation" / "architecture.md"
SOURCE = ROOT / "src" / "decibo"


def test_the_architecture_names_every_room():
    text = ARCHITECTURE.read_text()
    folders = [f"{path.name}/" for path in SOURCE.iterdir() if (path / "__init__.py").exists()]
    modules = [path.stem for path in SOURCE.glob("*.py") if not path.stem.startswith("__")]
    assert not [name for name in folders if f"`{name}`" not in text]
    assert not [name for name in modules if not re.search(rf"`{name}(\.py)?`", text)]


def test_the_architecture_names_files_that_exist():
    files = re.findall(r"`([\w/]+\.py)`", ARCHITECTURE.read_text())
    assert len(files) > 15
    assert not [
        file for file in files if not (SOURCE / file).exists() and not (ROOT / file).exists()
    ]


def refreshed(text, name, lines=()):
    """The page with the outputs its blocks print, and a report of each output whose words would
    change.

    `lines` are those of the outputs whose words may change.
    """
    parts = []
    changes = []
    end = 0
    for match, printed in run(text, name):
        if match[4] is None:
            continue
        line = text.count("\n", 0, text.rindex("```text", 0, match.start(4))) + 1
        if words(match[4]) != words(printed) and line not in lines:
            changes.append(change(name, line, match[4], printed))
        parts += [text[end : match.start(4)], printed]
        end = match.end(4)
    return "".join(parts) + text[end:], changes


def change(name, line, shown, printed):
    """The report of an output whose words would change."""
    title = f"{name}:{line}: the words of this output would change."
    return f"{title} The page says\n{shown}but the block prints\n{printed}"


def refresh(page, lines=()):
    """Write what the blocks print into the page; if words would change, write nothing and return an
    error status."""
    begun = time.perf_counter()
    status = write(page, *refreshed(page.read_text(), str(page), lines))
    print(f"{page}: {time.perf_counter() - begun:.1f} s")
    return status


def write(page, text, changes):
    """Write the page, unless words would change; returns the exit status."""
    if changes:
        print(*changes, sep="\n")
        print(
            f"{page} was not changed. If the new words are right, name their lines: --words LINE"
            " [LINE ...]"
        )
        return 1
    page.write_text(text)
    return 0


PAGE = """Two outputs.

```python
print("half of", 3, "is", 3 / 2)
```

```text
half of 3 is {number}
```

```python
print("smaller than one:", 3 / 2 < 1)
```

```text
smaller than one: {word}
```
"""


def test_the_refresher_updates_numbers(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(number="1.4", word="False"))
    assert refresh(page) == 0
    assert page.read_text() == PAGE.format(number="1.5", word="False")


def test_the_refresher_does_not_change_words_unless_their_line_is_named(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(number="1.4", word="True"))
    assert refresh(page) == 1
    assert page.read_text() == PAGE.format(number="1.4", word="True")
    output = capsys.readouterr().out
    assert f"{page}:15: the words of this output would change" in output
    assert "smaller than one: True" in output
    assert "smaller than one: False" in output
    assert f"{page}:7:" not in output
    assert refresh(page, lines=[7]) == 1
    assert refresh(page, lines=[15]) == 0
    assert page.read_text() == PAGE.format(number="1.5", word="False")


def test_the_command_fails_when_words_would_change(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(number="1.4", word="True"))
    command = [sys.executable, __file__, str(page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "--words" in done.stdout


if __name__ == "__main__":
    import jax

    parser = argparse.ArgumentParser(
        description="Update the outputs in pages of the documentation."
    )
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument(
        "--words",
        nargs="+",
        type=int,
        default=[],
        metavar="LINE",
        help="outputs whose words may change",
    )
    arguments = parser.parse_args()
    if arguments.words and len(arguments.pages) > 1:
        parser.error("--words needs a single page.")
    jax.config.update("jax_enable_x64", True)
    sys.exit(max(refresh(page, arguments.words) for page in arguments.pages))
