"""The site builds strictly, without a warning, and a page loads nothing from anywhere else."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOADED = re.compile(r'<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)="((?:https?:)?//[^"]*)"')
STYLE = re.compile(r"(?:@import\s+|url\()[\"']?((?:https?:)?//[^\"')]+)")

HOW_TO = [path for path in (ROOT / "docs" / "how-to").glob("*.md") if path.stem != "index"]

pytestmark = pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="needs mkdocs-material")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # an advertisement
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_built(site):
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    folder = lambda page: page.parent if page.stem == "index" else page.with_suffix("")
    assert not [page for page in pages if not (site / folder(page) / "index.html").exists()]
    for example in (ROOT / "examples").glob("*.py"):
        assert (site / "examples" / example.stem / "index.html").exists()


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
    pages = {path.name: (site / "how-to" / path.stem / "index.html").read_text() for path in HOW_TO}
    assert "no-run" in (ROOT / "docs" / "how-to" / "data.md").read_text()  # a mark for the suite, not for readers
    for name, page in pages.items():
        assert "no-run" not in page
        source = (ROOT / "docs" / "how-to" / name).read_text()
        assert page.count('<div class="highlight">') == len(re.findall(r"^```\w", source, flags=re.MULTILINE)) > 0
