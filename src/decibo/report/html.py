"""Small pieces of HTML. Text is escaped here or by the caller; cells are HTML already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from decibo.formatting import NONE
from decibo.report.palette import look
from decibo.report.verdict import Verdict

Cell = str | tuple[str, str]  # HTML, or (class, HTML)


def table(head: Sequence[Cell], rows: Iterable[Sequence[Cell]]) -> str:
    """A table whose first column names the rows."""
    top = "".join(_cell("th", cell, ' scope="col"') for cell in head)
    titles = [f' data-name="{cell[1] if isinstance(cell, tuple) else cell}"' for cell in head[1:]]
    lines = [[_cell("th", row[0], ' scope="row"'), *map(_cell, ["td"] * len(titles), row[1:], titles)] for row in rows]
    body = "".join(f"<tr>{''.join(line)}</tr>" for line in lines)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _cell(tag: str, cell: Cell, more: str = "") -> str:
    kind, html = cell if isinstance(cell, tuple) else ("", cell)
    more += f' class="{kind}"' if kind else ""
    return f"<{tag}{more}>{html}</{tag}>"


def mark(k: int) -> str:
    """The line of a run as a small picture."""
    colour, dash = look(k)
    return (
        f'<svg class="mark" viewBox="0 0 22 8" aria-hidden="true"><line x1="0" x2="22" y1="4" y2="4" '
        f'stroke="var(--c{colour})" stroke-dasharray="{dash}"/></svg>'
    )


def named(k: int, label: str) -> str:
    """The name of a run behind its line."""
    return f'<span class="run">{mark(k)}<span>{escape(label)}</span></span>'


def badge(verdict: Verdict) -> str:
    """A verdict in a word, with a sign for those who cannot see its colour."""
    sign = {"good": "✓", "bad": "✕", "floor": NONE, "open": "…"}[verdict.kind]
    return f'<span class="badge {verdict.kind}">{sign} {escape(verdict.title)}</span>'


def spaced(name: str) -> str:
    """A name without underscores, which breaks where it must."""
    return name.replace("_", " ")


def quiet(text: str) -> str:
    """A line below, in grey."""
    return f'<p class="note">{escape(text)}</p>' if text else ""
