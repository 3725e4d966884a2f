"""A griffe extension: docstrings in the style of this library become Markdown.

`name   what it means` lines become a table, indented blocks code, and the rest is prose in which
y* and <= mean what they say. Docstrings are written for `help()`; this makes them read as well on
the site.
"""

import inspect
import re
from pathlib import Path

import griffe

ROOT = Path(__file__).parent.parent
NAME = r"`?[A-Za-z_.]\w*(?:\([^)]*\))?`?"
MEANING = re.compile(rf"^({NAME}(?:, {NAME})*) {{2,}}(\S.*)$")


class Columns(griffe.Extension):
    """Rewrites the docstring of every object that griffe has read."""

    def on_object(self, *, obj, **_):
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(docstring):
    """A docstring as Markdown."""
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(docstring))
    return "\n\n".join(_block(block) for block in blocks)


def _block(text):
    lines = text.split("\n")
    if all(line.startswith("    ") for line in lines):
        return f"```text\n{inspect.cleandoc(text)}\n```"
    if MEANING.match(lines[0]):
        return _table(lines)
    return _prose(text)


def _table(lines):
    rows = []
    for line in lines:
        match = MEANING.match(line)
        if match is not None:
            rows.append([match[1].replace("`", ""), match[2]])
        else:  # the meaning goes on
            rows[-1][1] += f" {line.strip()}"
    cells = [
        f"| `{name}` | {_prose(meaning).replace('|', chr(92) + '|')} |" for name, meaning in rows
    ]
    return "\n".join(["| name | meaning |", "|---|---|", *cells])


def _prose(text):
    """Escape what Markdown would read as its own, outside `code`; pages of the site become links."""
    pieces = re.split(r"(`[^`]*`)", text)
    plain = [re.sub(r"([*$<_])", r"\\\1", piece).replace("\\<", "&lt;") for piece in pieces[::2]]
    pieces[::2] = [re.sub(r"docs/([\w/\\-]+\.md)", _page, piece) for piece in plain]
    return "".join(pieces)


def _page(match):
    path = match[1].replace("\\", "")
    return f"[{path}](../{path})" if (ROOT / "docs" / path).exists() else match[0]
