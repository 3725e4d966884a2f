"""Sites: every owner runs the same method on a machine and with data of their own, and talks to
neighbours only.

A job file says what all agree on; `decibo site`, `decibo join` and `decibo relay` are the commands
for it, and `join` is the same from Python.
"""

from decibo.errors import LostError
from decibo.silo.identity import Home
from decibo.silo.job import Job, Site, read_job
from decibo.silo.join import join
from decibo.silo.member import Member
from decibo.silo.wire import Faults, Memory, Wire

__all__ = [
    "Faults",
    "Home",
    "Job",
    "LostError",
    "Member",
    "Memory",
    "Site",
    "Wire",
    "join",
    "read_job",
]
