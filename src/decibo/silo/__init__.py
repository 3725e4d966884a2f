"""Sites: every owner runs the same method on a machine and with data of their own, and exchanges
messages with neighbours only.

A job file says what all agree on; `decibo site`, `decibo join` and `decibo relay` are the commands
for it, and `join` is the same from Python.
"""

from decibo.errors import LostError
from decibo.silo.consortium import Consortium
from decibo.silo.identity import Identity, Site
from decibo.silo.job import Job, read_job
from decibo.silo.join import join
from decibo.silo.wire import Faults, Memory, Wire

__all__ = [
    "Consortium",
    "Faults",
    "Identity",
    "Job",
    "LostError",
    "Memory",
    "Site",
    "Wire",
    "join",
    "read_job",
]
