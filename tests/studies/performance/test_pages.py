"""The pages of the performance study have the numbers of its stored results."""

import json

from studies.performance import page


def test_the_summary_and_the_tables_have_the_numbers_of_the_stored_results():
    results = json.loads(page.STORED.read_text())
    text = (page.ROOT / "studies" / "performance" / "README.md").read_text()
    assert page.summary(results) in text
    assert results["machine"]["date"] in text
    assert page.page(results) == (page.RESULTS / "performance.md").read_text()
    row = next(row for row in results["rows"] if row["what"].endswith("784: ahead_exact, a step"))
    row["value"] += 1.0
    assert page.summary(results) not in text
