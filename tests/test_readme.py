"""The README: its code runs as printed, hello world is as short as promised, and its links lead
somewhere."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import decibo

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


def test_hello_world_runs_as_printed():
    code = (
        BLOCKS[0]
        + "\nprint(decibo.sklearn.SiloLogisticRegression.__name__, decibo.report.report.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    lines = [line for line in BLOCKS[0].splitlines() if line.strip()]
    assert len(lines) <= 15
    *printed, names = done.stdout.splitlines(keepends=True)
    said = "".join(printed)
    numbers = [float(number) for number in re.findall(r"-?\d+\.\d*", said)]
    wanted = [4.0, 2.0, 2.0, 1.0]
    assert len(numbers) == 4
    assert all(abs(number - value) < 1e-3 for number, value in zip(numbers, wanted, strict=True))
    assert f"```text\n{said}```" in README.read_text()
    # estimators need no import of their own
    assert names.split() == ["SiloLogisticRegression", "report"]


def test_every_block_runs_after_the_ones_before_it():
    namespace = {"__name__": "readme"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few steps: the estimator warns that it has not converged
        for block in BLOCKS:
            exec(compile(block, str(README), "exec"), namespace)
    assert namespace["solution"].status == "done"
    assert namespace["model"].coef_.shape == (1, 30)


def test_the_command_line_works_as_described(tmp_path):
    (tmp_path / "mine.py").write_text(BLOCKS[0])
    (line,) = re.findall(r"^\$ decibo (run .*?) +#", README.read_text(), flags=re.MULTILINE)
    command = [sys.executable, "-m", "decibo", *line.split()]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("out/*/solution.npz"))


def test_it_counts_the_methods():
    assert f"any of the {len(decibo.CATALOG)} in" in README.read_text()
    assert f"{len(decibo.CATALOG)} methods" in (README.parent / "docs" / "index.md").read_text()


def test_links_lead_somewhere():
    links = [
        link for link in re.findall(r"\]\(([^)#\s]+)", README.read_text()) if "://" not in link
    ]
    assert len(links) > 10
    assert not [link for link in links if not (README.parent / link).exists()]
