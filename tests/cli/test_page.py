"""Pages with commands: their files are written, their commands typed, and they print what the page
says.

python tests/cli/test_page.py                 update the numbers in the outputs of the page of the
                                              command line
python tests/cli/test_page.py --words 42      and the words of the output at line 42
"""

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path

import pytest

import test_docs

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "command-line.md"
PAGES = [PAGE]
FILES = re.compile(r'```\w+ title="([\w.]+)"\n(.*?)```', re.DOTALL)
CONSOLE = re.compile(r"```console\n\$ decibo ([^\n]*)\n(.*?)```", re.DOTALL)
RESTARTS = re.compile(r"\s+\d+ restarts\.")
SECONDS = re.compile(r" *\d+(\.\d+)? (ms|s|min)\b")
RULE = re.compile("─+")


def typed(call, text):
    """(block, what the page says, what was printed) of each command, in order, in one folder."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            files = dict(FILES.findall(text))
            for name, content in files.items():
                Path(name).write_text(content)
            for match in CONSOLE.finditer(text):
                words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', match[1])]
                done = call(*words)
                yield match, done
        finally:
            os.chdir(before)
            sys.path[:] = [place for place in sys.path if place != folder]
            for name in files:
                sys.modules.pop(Path(name).stem, None)


def plain(text):
    """Times, and with them the widths of tables, made equal; automatic steps depend on the rounding
    of a machine."""
    return RULE.sub("─", RESTARTS.sub("", SECONDS.sub("0 s", text)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_print_what_the_page_says(decibo_call, page):
    for match, done in typed(decibo_call, page.read_text()):
        assert done.code == (2 if done.err else 0), done.err
        said, printed = plain(match[2]), plain(done.out + done.err)
        assert not said or test_docs.agree(said, printed, True), (
            f"the page says\n{said}\nit printed\n{printed}"
        )


def test_a_problem_of_ones_own_is_short():
    files = dict(FILES.findall(PAGE.read_text()))
    assert len([line for line in files["mine.py"].splitlines() if line.strip()]) <= 15


def refresh(lines=()):
    """Write what the commands print into the page; words change only at the lines that are
    named."""
    from conftest import call

    text = PAGE.read_text()
    parts = []
    changes = []
    end = 0
    for match, done in typed(call, text):
        line = text.count("\n", 0, match.start()) + 1
        quiet = "--json" in match[1] or "--latex" in match[1]
        printed = "" if quiet else done.out + done.err
        if (
            test_docs.words(plain(match[2])) != test_docs.words(plain(printed))
            and line not in lines
        ):
            changes.append(test_docs.change(str(PAGE), line, match[2], printed))
        parts += [text[end : match.start(2)], printed]
        end = match.end(2)
    return test_docs.write(PAGE, "".join(parts) + text[end:], changes)


if __name__ == "__main__":
    import jax

    parser = argparse.ArgumentParser(
        description="Update the outputs in the page about the command line."
    )
    parser.add_argument(
        "--words",
        nargs="+",
        type=int,
        default=[],
        metavar="LINE",
        help="outputs whose words may change",
    )
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    sys.exit(refresh(arguments.words))
