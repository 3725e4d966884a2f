"""A site's own folder: its name, its key, its certificate, and the runs it has taken part in.

    ~/.decibo/site/site.toml     name, address, and what loads its data: `data = "module:function"`,
                                 or for estimators the file with its `table`; only its user may read
                                 the folder. Where nobody can be asked, `problem =
                                 "module:function"` is the only one of its own that a job may name
    ~/.decibo/site/NAME.key      the private key, which never leaves this folder
    ~/.decibo/site/NAME.pem      the certificate, which goes into job files
    ~/.decibo/site/runs/JOB/     the checkpoints of a run

Keys are made by the program `openssl`, so that decibo needs no package for cryptography: P-256,
self-signed, without an end that anybody would live to see. Whoever has a PKI may put its two files
there instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from decibo.errors import CorruptedFileError, InputError, first_line
from decibo.files import PRIVATE, atomic_write, read_checked
from decibo.silo.job import Job, Site
from decibo.silo.session import Credentials
from decibo.validate import only_known

DEFAULT = "~/.decibo/site"
DAYS = 36500
KEYS = ("name", "address", "listen", "data", "table", "problem")
CONFIG = (
    "[req]\ndistinguished_name = dn\nx509_extensions = ext\n[dn]\n[ext]\nbasicConstraints ="
    " critical,CA:FALSE\n"
)


@dataclass(frozen=True)
class Home:
    """The folder of a site.

    address   where others can call it, if they can
    listen    where it listens, if that is not its address: behind a router, say
    data      what loads its data, as "module:function"
    table     the CSV or parquet file with its samples, for jobs with an estimator
    problem   the function, as "module:function", that a job may name where nobody can be asked
              (integrations.flare)
    """

    folder: Path
    name: str
    address: str | None = None
    listen: str | None = None
    data: str | None = None
    table: str | None = None
    problem: str | None = None

    @classmethod
    def at(cls, folder: str | Path | None = None) -> Home:
        """The site in this folder."""
        place = Path(folder or DEFAULT).expanduser()
        path = place / "site.toml"
        if not path.is_file():
            raise InputError(
                f"There is no site in {place}.", "Make one with: decibo site init --name NAME"
            )
        try:
            table = tomllib.loads(read_checked(path).decode("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, CorruptedFileError) as error:
            raise InputError(f"{path} cannot be read: {first_line(error)}.") from error
        only_known(str(path), "key", table, KEYS)
        bad = [key for key, value in table.items() if not isinstance(value, str)]
        if bad or "name" not in table:
            raise InputError(
                f"{path} must hold texts, and a name among them, but {bad or 'the name'} is"
                " missing."
            )
        return cls(place, **table)

    @classmethod
    def make(cls, folder: str | Path | None, name: str, address: str | None = None) -> Home:
        """A new site, with a new key."""
        place = Path(folder or DEFAULT).expanduser()
        Site(name, address=address)
        if (place / "site.toml").exists():
            raise InputError(
                f"There is a site in {place} already, and its key is not replaced.",
                "Show its card with: decibo site card, or choose another folder with --home.",
            )
        place.mkdir(parents=True, exist_ok=True)
        os.chmod(place, 0o700)
        certificate, key = _new_key(name)
        atomic_write(place / f"{name}.key", key, PRIVATE)
        atomic_write(place / f"{name}.pem", certificate)
        lines = [f'name = "{name}"'] + ([f'address = "{address}"'] if address else [])
        lines.append(
            '# data = "module:function"   what loads this site\'s data; no other site learns of it'
        )
        lines.append(
            '# table = "ours.csv"         or the file with its samples, for jobs with an'
            " [estimator]"
        )
        atomic_write(place / "site.toml", "\n".join(lines) + "\n", PRIVATE)
        return cls(place, name, address)

    @property
    def site(self) -> Site:
        """What the others need to know of this site."""
        path = self.folder / f"{self.name}.pem"
        return Site(self.name, read_checked(path).decode("ascii", "replace").strip(), self.address)

    def card(self) -> str:
        """The site as an entry of a job file."""
        address = f'address = "{self.address}"\n' if self.address else ""
        return (
            f'[[site]]\nname = "{self.name}"\n{address}certificate ='
            f' """\n{self.site.certificate}\n"""\n'
        )

    def run(self, job: Job) -> Path:
        """Where the checkpoints of a job are."""
        return self.folder / "runs" / job.digest.hex()[:16]

    def credentials(self, expected: Site) -> Credentials:
        """The files of the key, if the job has the certificate that belongs to it."""
        own = self.site
        if own.fingerprint != expected.fingerprint:
            raise InputError(
                f"The job has another certificate of {expected.name}"
                f" ({expected.fingerprint[:16]}...) than {self.folder}"
                f" ({own.fingerprint[:16]}...).",
                "Put the card that `decibo site card` prints here into the job file of all sites.",
            )
        key = self.folder / f"{self.name}.key"
        if not key.is_file():
            raise InputError(f"The key {key} is missing.")
        if os.name == "posix" and key.stat().st_mode & 0o077:
            raise InputError(f"Others can read the key {key}.", f"Run: chmod 600 {key}")
        return Credentials(self.folder / f"{self.name}.pem", key)


def _new_key(name: str) -> tuple[bytes, bytes]:
    """A certificate and its key, in PEM."""
    program = shutil.which("openssl")
    if program is None:
        raise InputError(
            "Making a key needs the program openssl, which is not installed here.",
            "Install it with the packages of your system, or put a certificate and a key into the"
            " folder yourself.",
        )
    with tempfile.TemporaryDirectory() as folder:  # only its user may read it
        place = Path(folder)
        (place / "config").write_text(CONFIG)
        commands = (
            ["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "key"],
            f"req -new -x509 -key key -sha256 -days {DAYS} -subj /CN={name} -config config -out pem".split(),
        )
        for words in commands:
            done = subprocess.run(
                [program, *words], cwd=folder, capture_output=True, text=True, umask=0o077
            )
            if done.returncode:
                raise InputError(
                    f"openssl {words[0]} failed: {first_line(ValueError(done.stderr))}."
                )
        return (place / "pem").read_bytes(), (place / "key").read_bytes()
