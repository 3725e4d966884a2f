"""The site builds strictly, works when it is opened from a disk, and a page loads nothing from
anywhere else."""

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import decibo
from helpers.browser import chromium

ROOT = Path(__file__).parent.parent
LOADED = re.compile(
    r'<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)="((?:https?:)?//[^"]*)"'
)
STYLE = re.compile(r"(?:@import\s+|url\()[\"']?((?:https?:)?//[^\"')]+)")

HOW_TO = list((ROOT / "docs" / "how-to").glob("*.md"))

# `make docs` builds the site too; half a minute a day is enough
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("mkdocstrings") is None, reason="needs mkdocs-material"
    ),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # an advertisement
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_built(site):
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    assert not [page for page in pages if not (site / page).with_suffix(".html").exists()]
    for example in (ROOT / "examples").glob("*.py"):
        assert (site / "examples" / f"{example.stem}.html").exists()


def test_nothing_is_loaded_from_elsewhere(site):
    outside = {
        (str(file.relative_to(site)), address)
        for kind, pattern in (("*.html", LOADED), ("*.css", STYLE))
        for file in site.rglob(kind)
        for address in pattern.findall(file.read_text())
        if not re.search(r'rel="canonical"', address)
    }
    assert not outside
    assert sum(1 for _ in site.rglob("*.html")) > 20


def test_code_blocks_survive(site):
    pages = {path.name: (site / "how-to" / f"{path.stem}.html").read_text() for path in HOW_TO}
    # a mark for the suite, not for readers
    assert "no-run" in (ROOT / "docs" / "how-to" / "data_and_network.md").read_text()
    for name, page in pages.items():
        assert "no-run" not in page
        source = (ROOT / "docs" / "how-to" / name).read_text()
        assert (
            page.count('<div class="highlight">')
            == len(re.findall(r"^```(?!math)\w", source, flags=re.MULTILINE))
            > 0
        )


def test_every_public_name_has_its_docstring_in_the_reference(site):
    modules = {"decibo": decibo} | {
        f"decibo.{name}": getattr(decibo, name)
        for name in decibo.__all__
        if inspect.ismodule(getattr(decibo, name))
    }
    overview = (site / "reference.html").read_text()
    for path, module in modules.items():
        page = (site / "reference" / f"{path}.html").read_text()
        source = module.__name__
        names = [name for name in module.__all__ if not inspect.ismodule(getattr(module, name))]
        assert names
        for name in names:
            assert f'<h2 id="{source}.{name}"' in page
            assert f'href="reference/{path}.html#{source}.{name}"' in overview


def test_docstrings_are_tables_and_prose(site):
    page = (site / "reference" / "decibo.html").read_text()
    meaning = r"<td><code>every</code></td>\s*<td>the number of steps between two records"
    assert re.search(meaning, page)
    assert "y*(x)" in page


@pytest.fixture(scope="module")
def opened(site):
    """The front page in a browser, opened from the disk; at the end no request may have gone
    anywhere else."""
    with chromium() as browser:
        page = browser.new_page()
        requests = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(f"file://{site}/index.html")
        yield page
        assert not [
            url for url in requests if not url.startswith(("file://", "data:", "blob:", "about:"))
        ]
        assert len(requests) > 10


def test_search_works_from_a_disk(site, opened):
    opened.goto(f"file://{site}/index.html")
    opened.click("input.md-search__input")
    opened.keyboard.type("exact diffusion")
    link = opened.wait_for_selector(".md-search-result__item a")
    target = link.get_attribute("href").partition("?")[0].partition("#")[0]
    assert (site / target.removeprefix(f"file://{site}/")).is_file()


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_off(site, opened, width):
    """On a wide screen tables and code fit, result tables of the studies aside; on a narrow one they
    scroll by themselves, and the page does not."""
    opened.set_viewport_size({"width": width, "height": 1000})
    pages = [file for file in sorted(site.rglob("*.html")) if file.name != "404.html"]
    cut = """[...document.querySelectorAll(".md-content .md-typeset__scrollwrap, .md-content pre > code")]
        .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText.slice(0, 60))"""
    for file in pages:
        opened.goto(f"file://{file}")
        assert opened.evaluate("document.documentElement.scrollWidth") <= width, file
        if width == 1280 and "results" not in file.parts:
            assert opened.evaluate(cut) == [], file


def test_formulas_are_rendered(site, opened):
    """Every formula of every page becomes KaTeX, and none is one that KaTeX does not understand."""
    pages = [
        file for file in sorted(site.rglob("*.html")) if 'class="arithmatex"' in file.read_text()
    ]
    assert len(pages) > 5
    for file in pages:
        opened.goto(f"file://{file}")
        marked = opened.locator(".arithmatex").count()
        assert opened.locator(".arithmatex .katex").count() >= marked > 0, file
        assert opened.locator(".katex-error").all_inner_texts() == [], file
