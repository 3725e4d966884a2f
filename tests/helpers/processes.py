"""Programs in processes of their own."""

import os
import subprocess
import sys


def printed(*words, timeout=600, cwd=None, **environment):
    """What a program of Python prints; it finds what this process finds, and must end well."""
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
