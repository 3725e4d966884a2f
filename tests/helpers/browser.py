"""A browser for the tests of pages, where the machine has one."""

import contextlib
import shutil
import warnings

import pytest

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextlib.contextmanager
def chromium():
    """Chromium under playwright; skips the test where one of them is missing."""
    program = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if program is None:
        pytest.skip("no Chromium on this machine: the page is not tried in a browser")
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: no browser tests"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of playwright's own event loop
        with api.sync_playwright() as playwright:
            started = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
            yield started
            started.close()
