"""The README's hello world runs as printed, and is as short as promised."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_hello_world_runs_as_printed():
    code = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)[0]
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 15
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    numbers = [float(number) for number in re.findall(r"-?\d+\.\d*", done.stdout)]
    wanted = [4.0, 2.0, 2.0, 1.0]
    assert len(numbers) == 4
    assert all(abs(number - value) < 1e-3 for number, value in zip(numbers, wanted, strict=True))
