"""Every code block of the documentation runs, and prints what the page says it prints.

Blocks of a page run in order in one namespace. A ```text block right after a ```python block is its output: words must
agree, numbers to 2 % (or both be below 1e-10: rounding), after ```text about to a factor of 5. ```python no-run blocks
are only compiled.

    python tests/test_docs.py docs/how-to/data.md        writes the outputs into the page again
"""

import contextlib
import io
import re
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
BLOCK = re.compile(r"```(python(?: no-run)?)\n(.*?)```(?:\n+```text( about)?\n(.*?)```)?", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:,\d{3})*(?:\.\d*)?(?:e[-+]?\d+)?", re.IGNORECASE)


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
    return NUMBER.sub("#", text).split()


def numbers(text):
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def close(one, other, share):
    return abs(one - other) <= share * max(abs(one), abs(other)) or max(abs(one), abs(other)) < 1e-10


def agree(said, printed, about):
    pairs = zip(numbers(said), numbers(printed), strict=False)
    return words(said) == words(printed) and all(close(*pair, 0.8 if about else 0.02) for pair in pairs)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_blocks_run_and_print_what_the_page_says(page):
    for match, printed in run(page.read_text(), str(page)):
        said = match[4]
        assert said is None or agree(said, printed, match[3]), f"the page says\n{said}\nbut it printed\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_links_lead_somewhere(page):
    for link in LINK.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
        if "://" not in link:
            target, _, anchor = link.partition("#")
            found = (page.parent / target).resolve() if target else page
            assert found.exists(), f"{link} leads nowhere"
            assert not anchor or anchor in anchors(found), f"{link}: no such heading"


def anchors(page):
    """What headings are called in links."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_reference_names_everything_public():
    import decibo
    from decibo.algorithm import single
    from decibo.measure import measures

    page = (DOCS / "reference.md").read_text()
    names = {f"decibo.{name}" for name in decibo.__all__}
    for module in (decibo.direction, decibo.consensus, decibo.prox, single):
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        short = module.__name__.rpartition(".")[2]
        names |= {f"{short}.{name}" for name in own if name[0].islower() and name != "as_prox"}
    names |= {f"data.{name}" for name in decibo.data.__all__}
    missing = sorted(name for name in names if not re.search(rf"`{re.escape(name)}\b", page))
    missing += [name for name in measures.available("xyz", ("x", "y")) if f"`{name}`" not in page]
    assert not missing


def fill(page):
    """Write what the blocks print into the page."""
    text, begun = page.read_text(), time.perf_counter()
    for match, printed in list(run(text, str(page))):
        if match[4] is not None:
            text = text.replace(match[0], match[0][: match.start(4) - match.start()] + printed + "```", 1)
    page.write_text(text)
    print(f"{page}: {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    import jax

    jax.config.update("jax_enable_x64", True)
    for name in sys.argv[1:]:
        fill(Path(name))
