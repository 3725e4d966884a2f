"""The command line: one file for each command.

Importing JAX takes a second or more. Ctrl-C ends the command in that time too, with a message and
its exit code: this file is imported first, and does something only if the program is the command
`decibo` or `python -m decibo`.
"""

import itertools
import os
import signal
import sys


def _is_command() -> bool:
    words = sys.orig_argv[1:]
    named = os.path.basename(sys.argv[0]) == "decibo" if sys.argv else False
    return named or any(pair == ("-m", "decibo") for pair in itertools.pairwise(words))


def _interrupted(number: int, frame: object) -> None:
    if "DECIBO_STATUS" not in os.environ:  # otherwise the supervisor says it
        os.write(2, b"decibo: interrupted; nothing was written\n")
    os._exit(130)


if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _interrupted)
