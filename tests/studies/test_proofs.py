"""Proofs and results: blocks run and print what the pages say, links lead somewhere."""

from pathlib import Path

import pytest

import test_docs

STUDIES = Path(__file__).parents[2] / "studies"
PAGES = sorted(STUDIES.rglob("*.md"))
NAMES = [str(page.relative_to(STUDIES)) for page in PAGES]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_blocks_run_and_print_what_the_page_says(page):
    test_docs.test_blocks_run_and_print_what_the_page_says(page)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page):
    test_docs.test_links_lead_somewhere(page)
