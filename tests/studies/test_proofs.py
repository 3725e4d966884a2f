"""Proofs and results: blocks run and print what the pages say, links lead somewhere."""

from pathlib import Path

import pytest

import test_docs

STUDIES = Path(__file__).parents[2] / "studies"
PAGES = sorted([*STUDIES.glob("*.md"), *STUDIES.glob("proofs/*.md"), *STUDIES.glob("results/*.md")])
NAMES = [str(page.relative_to(STUDIES)) for page in PAGES]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_blocks_run_and_print_what_the_page_says(page):
    test_docs.test_blocks_run_and_print_what_the_page_says(page)


def test_links_lead_somewhere():
    broken = test_docs.broken_links(PAGES)
    assert not broken, "\n".join(broken)
