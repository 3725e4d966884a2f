"""The README: hello world runs as printed and is as short as promised, and links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


def test_hello_world_runs_as_printed():
    (hello,) = BLOCKS
    # estimators and reports need no import of their own
    names = "print(decibo.sklearn.SiloLogisticRegression.__name__, decibo.report.report.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", f"{hello}\n{names}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert len([line for line in hello.splitlines() if line.strip()]) <= 15
    *printed, last = done.stdout.splitlines(keepends=True)
    said = "".join(printed)
    numbers = [float(number) for number in re.findall(r"-?\d+\.\d*", said)]
    assert len(numbers) == 4
    assert all(abs(n - v) < 1e-3 for n, v in zip(numbers, [4.0, 2.0, 2.0, 1.0], strict=True))
    assert f"```text\n{said}```" in README.read_text()
    assert last.split() == ["SiloLogisticRegression", "report"]


def test_it_can_be_read_in_two_minutes():
    assert 450 <= len(README.read_text().split()) <= 600


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#\s]+)", README.read_text())
    inside = [link for link in links if "://" not in link]
    assert len(inside) >= 5
    assert not [link for link in inside if not (README.parent / link).exists()]
