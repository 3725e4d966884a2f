"""Where something was given, for messages: in the file, or by --set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decibo.cli.options import shown
from decibo.errors import InputError

TABLES = ("problem", "network", "method", "run", "compare", "sweep")


class Places(dict[str, str]):
    """Where a key was given: in the file, or by --set."""

    def __init__(self, file: str):
        super().__init__()
        self.file = file

    def __call__(self, table: str, key: str = "") -> str:
        here = f"{self.file}, [{table}]" if table in TABLES else f"{self.file}, {table}"
        return self.get(f"{table}.{key}" if key else table, f"{here}.{key}" if key else here)

    def inside(self, table: str) -> dict[str, str]:
        """The places of the keys of one table that --set gave."""
        return {key.partition(".")[2]: place for key, place in self.items() if key.startswith(table + ".")}


def as_table(given: Any, where: str) -> dict[str, Any]:
    """The table, if it is one."""
    if not isinstance(given, Mapping):
        raise InputError(f"{where} = {shown(given)}", "it must be a table", "Write its name in square brackets.")
    return dict(given)
