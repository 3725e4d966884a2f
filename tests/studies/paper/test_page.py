"""What docs/reproduction.md says is what the study measured last."""

import json
import re
from collections import Counter
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reproduction.md").read_text()
STORED = json.loads((ROOT / "studies" / "results" / "paper.json").read_text())
VERDICTS = ("holds", "does not hold", "undecided")


def test_the_summary_counts_the_claims():
    rows = re.findall(r"^\| ([^|]+) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    found = [tuple(map(int, counts)) for _, *counts in rows]
    counted = [Counter(c["verdict"] for c in each["claims"]) for each in STORED["experiments"]]
    assert found == [tuple(count[verdict] for verdict in VERDICTS) for count in counted]
    for (title, *_), each in zip(rows, STORED["experiments"], strict=True):
        assert title.split(":")[0] == each["title"].split(":")[0]


def test_the_sentences_have_the_stored_numbers():
    claims = {c["paper"]: c for each in STORED["experiments"] for c in each["claims"]}
    third = claims["column 3: converges"]
    assert third["verdict"] == "undecided"
    assert "diverges for 11 of 24 seeds" in third["measured"]
    assert "diverges for 11 of 24 seeds" in PAGE
    slope = claims[
        "Corollary 1, practical constants, start 10 from x*: R(K) falls like K^(-1/3) or faster"
    ]
    assert "slope -0.33" in slope["measured"]
    work = claims["future work: inner-level functions with nonconvexity"]["measured"]
    for number in ("1.1e-02", "2.1e-05"):
        assert number in work
        assert number.replace("e-0", "e-") in PAGE
    assert claims["b_g has a dominant impact on heterogeneity errors when K is large"][
        "verdict"
    ] == ("does not hold")
    date = datetime.strptime(re.search(r"\((\d+ \w+ \d{4}), jax", PAGE)[1], "%d %B %Y")
    assert date.strftime("%Y-%m-%d") == STORED["measured"]["date"]
