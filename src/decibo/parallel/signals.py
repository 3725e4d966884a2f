"""Stopping on request: Ctrl-C and SIGTERM end a run after the steps under way, with its results."""

from __future__ import annotations

import signal
import threading
from itertools import pairwise
from types import FrameType, TracebackType
from typing import Any, ClassVar, Self


class GracefulStop:
    """Inside `with GracefulStop() as stop`, Ctrl-C and SIGTERM set `stop.requested` instead of
    ending the process.

    patience   how many signals are only recorded; the next Ctrl-C then raises KeyboardInterrupt.
               With 0 either signal raises it at once, and with None nothing ever does.

    Previous handlers are restored at the end. Outside the main thread, where Python allows none,
    nothing happens.
    """

    # Python drops an exception that a handler raises inside a finaliser or a callback of the
    # garbage collector (https://github.com/python/cpython/issues/95959). The request is not lost
    # with it: a block inside another one begins with the signals of the outer one, and without
    # patience a block that has received one ends in KeyboardInterrupt.
    active: ClassVar[list[GracefulStop]] = []

    def __init__(self, patience: int | None = 1) -> None:
        self.patience = patience
        self.received: list[int] = []
        self._inherited = 0  # how many of them the block around this one had received before
        self._previous: dict[int, Any] = {}

    @property
    def requested(self) -> str | None:
        """The name of the first signal, None as long as there was none."""
        return signal.Signals(self.received[0]).name if self.received else None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self.received += GracefulStop.active[-1].received if GracefulStop.active else []
            self._inherited = len(self.received)
            GracefulStop.active.append(self)
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            # None: not installed from Python
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if self._previous:
            GracefulStop.active.remove(self)
            self._previous.clear()
            if self.patience == 0 and self.received and error is None:
                if not GracefulStop.active:
                    raise KeyboardInterrupt
                GracefulStop.active[-1].received += self.received[self._inherited :]

    def pass_on(self) -> None:
        """Leave what came too late for this block to the block around it, if there is one."""
        around = [stop for stop, inside in pairwise(GracefulStop.active) if inside is self]
        for stop in around:
            stop.received += self.received[self._inherited :]
        self._inherited = len(self.received)

    @classmethod
    def asked(cls) -> bool:
        """Whether this thread is in a block that has received a signal, for work that waits."""
        main = threading.current_thread() is threading.main_thread()
        return main and bool(cls.active) and bool(cls.active[-1].received)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)
        if self.patience is None or len(self.received) <= self.patience:
            return
        if number == signal.SIGINT or self.patience == 0:
            raise KeyboardInterrupt
