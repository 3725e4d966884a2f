"""The documentation shows the first screens of the results, and both agree."""

from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_tables_of_the_page_are_those_of_the_results():
    page = (ROOT / "docs" / "benchmark.md").read_text()
    results = (ROOT / "studies" / "results" / "benchmark.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith(("|", "**Use "))]
    assert len(lines) > 30
    for line in lines:
        assert line in results, line
