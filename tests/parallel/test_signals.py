"""One graceful stop: the first signal asks, a second Ctrl-C interrupts, and the handlers come
back."""

import gc
import os
import signal
import sys
import threading

import pytest

from decibo.parallel.signals import GracefulStop

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def handlers_are_restored():
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_request(number):
    with GracefulStop() as stop:
        assert stop.requested is None
        os.kill(os.getpid(), number)
        assert stop.requested == number.name


def test_a_second_ctrl_c_interrupts_and_a_second_sigterm_does_not():
    with GracefulStop() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_without_patience_the_first_signal_interrupts():
    with pytest.raises(KeyboardInterrupt), GracefulStop(patience=0):
        os.kill(os.getpid(), signal.SIGTERM)


def test_with_endless_patience_every_signal_is_recorded():
    with GracefulStop(patience=None) as stop:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
    assert stop.received == [signal.SIGINT] * 3


def test_stops_nest():
    with GracefulStop() as outer:
        with GracefulStop() as inner:
            os.kill(os.getpid(), signal.SIGINT)
        assert (outer.requested, inner.requested) == (None, "SIGINT")
        os.kill(os.getpid(), signal.SIGINT)
        assert outer.requested == "SIGINT"


def test_what_comes_too_late_is_left_to_the_block_around():
    command = GracefulStop(patience=0)
    command.__enter__()
    with GracefulStop() as first:
        os.kill(os.getpid(), signal.SIGTERM)
        first.pass_on()
        first.pass_on()
    with GracefulStop() as second:
        assert second.received == [signal.SIGTERM]
    with pytest.raises(KeyboardInterrupt):  # only now: nothing was cut off
        command.__exit__(None, None, None)


def test_other_threads_install_nothing():
    before = signal.getsignal(signal.SIGINT)
    handlers = []

    def work():
        with GracefulStop():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [before]


def test_a_request_that_python_dropped_is_not_lost(monkeypatch):
    """An exception in a callback of the garbage collector is printed and forgotten; the request
    must not be."""
    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)

    def collecting(phase, info):
        if phase == "start":
            os.kill(os.getpid(), signal.SIGINT)

    def run():
        with GracefulStop(patience=0):
            gc.callbacks.append(collecting)
            try:
                gc.collect()
            finally:
                gc.callbacks.remove(collecting)
            assert len(dropped) == 1
            with GracefulStop() as inner:
                assert inner.requested == "SIGINT"

    with pytest.raises(KeyboardInterrupt):
        run()
