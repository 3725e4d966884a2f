"""Who a site is: its card, which all sites know, and its own folder with its key and its runs.

    ~/.decibo/site/site.toml     name, address, and what loads its data: `data = "module:function"`,
                                 or for estimators the file with its `table`; only its user may read
                                 the folder
    ~/.decibo/site/NAME.key      the private key, which never leaves this folder
    ~/.decibo/site/NAME.pem      the certificate, which goes into job files
    ~/.decibo/site/runs/JOB/     the checkpoints of a run

Keys are made by the program `openssl`, so that decibo needs no package for cryptography: P-256,
self-signed, valid for 100 years. Sites with a PKI may put its two files there instead.
"""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import tempfile
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from decibo.errors import InputError, first_line, short_repr
from decibo.files import PRIVATE, atomic_write, read_checked, read_toml

DEFAULT = "~/.decibo/site"
DAYS = 36500
LISTS = ("missing", "columns", "drop")  # of read_table
KEYS = ("name", "address", "listen", "data", "table", *LISTS)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
CONFIG = (
    "[req]\ndistinguished_name = dn\nx509_extensions = ext\n[dn]\n[ext]\nbasicConstraints ="
    " critical,CA:FALSE\n"
)
COMMENTS = """\
# data = "module:function"   what loads this site's data; no other site learns of it
# table = "ours.csv"         or the file with its samples, for jobs with an [estimator]
# missing = ["unknown"]      and of it: more words for a missing value, columns = [...] to read,
# drop = ["room"]            columns to leave out
"""


class Credentials(NamedTuple):
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Site:
    """One site: its name, its certificate, and where it can be called, if it can."""

    name: str
    certificate: str = ""
    address: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise InputError(
                "The name of a site must be up to 40 letters, digits, - and _, but it is"
                f" {short_repr(self.name)}."
            )
        if self.address is not None:
            _ = host_and_port(self.address, self.name)
        if self.certificate != "":
            _ = self.der

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the certificate, as `openssl x509 -fingerprint -sha256` shows it; empty
        if there is none."""
        return sha256(self.der).hexdigest() if self.certificate else ""

    @property
    def der(self) -> bytes:
        """The certificate as it appears in a handshake."""
        try:
            return ssl.PEM_cert_to_DER_cert(self.certificate.strip())
        except (ValueError, AttributeError, TypeError) as error:
            raise InputError(
                f"The certificate of {self.name} must be PEM, from -----BEGIN CERTIFICATE----- to"
                f" the end, but it is {short_repr(self.certificate)}.",
                "Copy the card that `decibo site card` prints at that site.",
            ) from error


def host_and_port(address: object, name: str) -> tuple[str, int]:
    found = ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if found is None or not 0 < int(found[2]) < 65536:
        raise InputError(
            f"The address of {name} must read host:port, but it is {short_repr(address)}."
        )
    return found[1].strip("[]"), int(found[2])


@dataclass(frozen=True)
class Identity:
    """The folder of a site: `Identity.at()`.

    address   where others can call it, if they can
    listen    where it listens, if that differs from its address: behind a router, say
    data      what loads its data, as "module:function"
    table     the CSV or parquet file with its samples, for jobs with an estimator; missing, columns
              and drop are those of `decibo.data.read_table`
    """

    folder: Path
    name: str
    address: str | None = None
    listen: str | None = None
    data: str | None = None
    table: str | None = None
    missing: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()

    @classmethod
    def at(cls, folder: str | Path | None = None) -> Identity:
        place = Path(folder or DEFAULT).expanduser()
        path = place / "site.toml"
        if not path.is_file():
            raise InputError(
                f"There is no site in {place}.", "Make one with: decibo site init --name NAME"
            )
        table = read_toml(path, KEYS)
        lists = {key: tuple(table.pop(key)) for key in LISTS if isinstance(table.get(key), list)}
        bad = [key for key, value in table.items() if not isinstance(value, str) or key in LISTS]
        bad += [key for key, words in lists.items() if not all(isinstance(w, str) for w in words)]
        if bad or "name" not in table:
            raise InputError(
                f"{path} must hold texts, lists of texts for {', '.join(LISTS)}, and a name among"
                f" them, but {bad or 'the name'} is missing."
            )
        return cls(place, **(table | lists))  # pyright: ignore[reportArgumentType]

    @classmethod
    def make(cls, folder: str | Path | None, name: str, address: str | None = None) -> Identity:
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
        own = f'address = "{address}"\n' if address else ""
        atomic_write(place / "site.toml", f'name = "{name}"\n{own}{COMMENTS}', PRIVATE)
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

    def run(self, digest: bytes) -> Path:
        """Where the checkpoints of the job with this digest are."""
        return self.folder / "runs" / digest.hex()[:16]

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
            "ecparam -name prime256v1 -genkey -noout -out key",
            f"req -new -x509 -key key -sha256 -days {DAYS} -subj /CN={name} -config config"
            " -out pem",
        )
        for words in map(str.split, commands):
            done = subprocess.run(
                [program, *words], cwd=folder, capture_output=True, text=True, umask=0o077
            )
            if done.returncode:
                raise InputError(
                    f"openssl {words[0]} failed: {first_line(ValueError(done.stderr))}."
                )
        return (place / "pem").read_bytes(), (place / "key").read_bytes()
