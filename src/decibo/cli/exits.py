"""What the exit status of `decibo` means."""

from __future__ import annotations

RAN, DIVERGED, WRONG, BROKEN, INTERRUPTED = 0, 1, 2, 70, 130

MEANING = {
    RAN: "it ran",
    DIVERGED: "it ran, but numbers stopped being finite",
    WRONG: "something given was wrong; nothing was run",
    BROKEN: "a mistake in decibo or in a library below it",
    INTERRUPTED: "interrupted (Ctrl-C, SIGTERM); what there was is written",
}
