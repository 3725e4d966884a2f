"""Runs on disk, and what is made of them: a page in HTML, figures and tables."""

from decibo.report.figures import figures
from decibo.report.latex import latex_table
from decibo.report.page import report
from decibo.runs.folder import RunRecord, check_target, is_run, read_run, write_run, write_runs

__all__ = [
    "RunRecord",
    "check_target",
    "figures",
    "is_run",
    "latex_table",
    "read_run",
    "report",
    "write_run",
    "write_runs",
]
