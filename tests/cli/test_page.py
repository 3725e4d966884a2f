"""The command line's page: its files are written, its commands typed, and they print what the page says.

python tests/command/test_page.py        writes the outputs into the page again
"""

import os
import re
import sys
import tempfile
from pathlib import Path

import test_docs

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
FILES = re.compile(r'```\w+ title="([\w.]+)"\n(.*?)```', re.DOTALL)
CONSOLE = re.compile(r"```console\n\$ decibo ([^\n]*)\n(.*?)```", re.DOTALL)
RESTARTS = re.compile(r"\s+\d+ restarts\.")
SECONDS = re.compile(r"\d+(\.\d+)? s\b")


def typed(call, text):
    """(block, what the page says, what was printed) of each command, in order, in one folder."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for name, content in FILES.findall(text):
                Path(name).write_text(content)
            for match in CONSOLE.finditer(text):
                words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', match[1])]
                done = call(*words)
                yield match, done
        finally:
            os.chdir(before)
            sys.path[:] = [place for place in sys.path if place != folder]
            sys.modules.pop("my_module", None)


def plain(text):
    """Times made equal; automatic step sizes differ with the rounding of a machine, so numbers agree to a factor."""
    return RESTARTS.sub("", SECONDS.sub("0 s", text))


def test_commands_print_what_the_page_says(decibo_call):
    for match, done in typed(decibo_call, PAGE.read_text()):
        assert done.code == (2 if done.err else 0), done.err
        said, printed = plain(match[2]), plain(done.out + done.err)
        assert not said or test_docs.agree(said, printed, True), f"the page says\n{said}\nit printed\n{printed}"


def test_hello_world_and_own_problem_are_short():
    files = dict(FILES.findall(PAGE.read_text()))
    lines = lambda name: [line for line in files[name].splitlines() if line.strip()]
    assert len(lines("my_module.py")) <= 15
    assert len(lines("own.toml")) <= 15


def fill():
    from conftest import call

    text = PAGE.read_text()
    for match, done in list(typed(call, text)):
        quiet = "--json" in match[1] or "--latex" in match[1]
        shown = "" if quiet else done.out + done.err
        text = text.replace(match[0], f"```console\n$ decibo {match[1]}\n{shown}```", 1)
    PAGE.write_text(text)


if __name__ == "__main__":
    import jax

    jax.config.update("jax_enable_x64", True)
    fill()
