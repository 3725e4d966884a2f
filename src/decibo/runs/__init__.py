"""Runs on disk: a folder for each, with its history, its solution and a description of what was
run."""

from decibo.runs.folder import RunRecord, check_target, is_run, read_run, write_run, write_runs

__all__ = ["RunRecord", "check_target", "is_run", "read_run", "write_run", "write_runs"]
