"""What a job with an estimator would have this site say, found from its own table before anything
is said."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from decibo.data.encode import TEXT
from decibo.silo.identity import Home
from decibo.silo.job import read_tables
from decibo.silo.member import Member
from decibo.silo.site_run import Say
from decibo.sklearn import owners
from decibo.sklearn.stored import estimator_of, own_table
from decibo.sklearn.trust import SiloTrust, said_of


@dataclass(frozen=True, eq=False)
class Foretold:
    """What all sites would read of this one, and whom it would talk to.

    member       this site among the others
    terms        what it compares with its neighbours
    columns      what every column holds: numbers, text or gaps
    categories   of the columns that hold text
    classes      of the labels, none for numbers
    steps        the most steps
    """

    member: Member
    terms: dict[str, str]
    columns: dict[str, str]
    categories: dict[str, list[str]]
    classes: list[object]
    steps: int


def foretold(path: Path, site: Home, say: Say) -> Foretold:
    """What a site would say in the job in a file."""
    model, label = estimator_of(path.name, read_tables(path)["estimator"])
    X, y = own_table(site, label)
    columns = owners.own_columns(X)
    labels = owners.own_labels(model, y, columns)
    holds = owners.what_they_hold(columns)
    words = lambda name: sorted({word for word in columns[name] if word is not None})
    return Foretold(
        Member.at(path, site.folder, say=say),
        owners.terms_of(model, columns) | (said_of() if isinstance(model, SiloTrust) else {}),
        {name: what or "numbers" for name, what in holds.items()},
        {name: words(name) for name, what in holds.items() if what == TEXT},
        labels["classes"],
        model.get_params()["steps"],
    )
