"""One graceful stop: Ctrl-C and SIGTERM become a request that a run honours when it can."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class GracefulStop:
    """Inside `with GracefulStop() as stop`, Ctrl-C and SIGTERM set `stop.requested` instead of ending the process.

    patience   how many signals are only recorded; the next Ctrl-C then raises KeyboardInterrupt. With 0 either signal
               raises it at once, and with None nothing ever does.

    Previous handlers are restored at the end. Outside the main thread, where Python allows none, nothing happens.
    """

    def __init__(self, patience: int | None = 1) -> None:
        self.patience = patience
        self.received: list[int] = []
        self._previous: dict[int, Any] = {}

    @property
    def requested(self) -> str | None:
        """The name of the first signal, None as long as there was none."""
        return signal.Signals(self.received[0]).name if self.received else None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not installed from Python
        self._previous.clear()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
        if self.patience is None or len(self.received) <= self.patience:
            return
        if number == signal.SIGINT or self.patience == 0:
            raise KeyboardInterrupt
