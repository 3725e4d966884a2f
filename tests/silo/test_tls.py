"""The wire: right frames to the right site, everything else refused with a line that says who, and
nothing readable."""

import asyncio
import contextlib
import dataclasses
import socket
import ssl
import subprocess
import threading
import time

import jax.numpy as jnp
import numpy as np
import pytest

import decibo
from decibo.cli.join import free_port
from decibo.errors import InputError
from decibo.silo import Job, Site, join
from decibo.silo.connection import Gate, TlsSession, context, network_of
from decibo.silo.identity import Credentials, Identity
from decibo.silo.relay import Caller, Relay
from decibo.silo.tls import TlsWire
from decibo.silo.wire import FewLines
from helpers.sites import NAMES, in_threads, warm


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    """Four sites, a relay, a stranger, and another one who has made a certificate in the name of
    east."""
    root = tmp_path_factory.mktemp("homes")
    found = {
        name: Identity.make(root / name, name, f"127.0.0.1:{free_port()}")
        for name in (*NAMES, "relay", "stranger")
    }
    return found | {"false east": Identity.make(root / "false", "east")}


@pytest.fixture(scope="module")
def job(homes):
    method = decibo.ahead_exact(alpha=0.05, gamma=0.1)
    sites = tuple(homes[name].site for name in NAMES)
    return Job(sites, decibo.problems.quadratic(agents=4), decibo.ring(4), method)


class Box:
    """A receiver that keeps everything."""

    longest = 1000

    def __init__(self):
        self.frames = []
        self.peers = []

    def deliver(self, peer, content):
        self.frames.append((peer, content))

    def connected(self, peer):
        self.peers.append(peer)


def eventually(holds):
    until = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.005)


@contextlib.contextmanager
def open_wires(job, homes, *names):
    """Wires of these sites, with what they receive and what they log."""
    boxes = {name: Box() for name in names}
    lines = []
    wires = {}
    for name in names:
        log = lambda line, name=name: lines.append(f"{name}: {line}")
        wires[name] = TlsWire(job.consortium, name, homes[name], log)
    try:
        for name, wire in wires.items():
            wire.start(boxes[name])
        yield wires, boxes, lines
    finally:
        for wire in wires.values():
            wire.close()


def test_frames_arrive_and_a_site_that_comes_back_is_connected_again(job, homes):
    with open_wires(job, homes, "north") as (wires, boxes, lines):
        for _ in range(2):
            with open_wires(job, homes, "east") as (others, theirs, _):
                eventually(
                    lambda theirs=theirs: (
                        theirs["east"].peers == ["north"] and "east" in wires["north"].links
                    )
                )
                wires["north"].send("east", b"to east")
                others["east"].send("north", b"to north" * 100)
                eventually(lambda theirs=theirs: theirs["east"].frames == [("north", b"to east")])
                eventually(lambda: boxes["north"].frames)
                assert boxes["north"].frames.pop() == ("east", b"to north" * 100)
            eventually(lambda: "east" not in wires["north"].links)
    assert lines.count("north: connected with east at 127.0.0.1") == 2


def call(address, settings, log=b""):
    """Call a site as a stranger would; returns what came back."""
    host, port = address.split(":")
    bare = socket.create_connection((host, int(port)), timeout=10)
    with contextlib.ExitStack() as stack:
        stack.callback(bare.close)
        link = bare if settings is None else stack.enter_context(settings.wrap_socket(bare))
        link.sendall(log)
        return link.recv(100)


def anyone(own=None, version=ssl.TLSVersion.TLSv1_3):
    settings = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    settings.check_hostname = False
    settings.verify_mode = ssl.CERT_NONE
    settings.minimum_version = settings.maximum_version = version
    if own is not None:
        settings.load_cert_chain(own.certificate, own.key)
    return settings


def own(homes, name):
    home = homes[name]
    return Credentials(home.folder / f"{home.name}.pem", home.folder / f"{home.name}.key")


FRAME = (5).to_bytes(4, "little") + b"hello"


def attacks(homes):
    http = b"GET / HTTP/1.1\r\nHost: north\r\n\r\n"
    return {
        "no certificate": (anyone(), FRAME, "127.0.0.1: it shows no certificate"),
        "unknown": (
            anyone(own(homes, "stranger")),
            FRAME,
            "its certificate is not that of a site of this job",
        ),
        "wrong key": (
            anyone(own(homes, "false east")),
            FRAME,
            "its certificate is not that of a site of this job",
        ),
        "no neighbour": (
            anyone(own(homes, "south")),
            FRAME,
            "south is a site of this job, but no neighbour of north",
        ),
        "HTTP": (None, http, "127.0.0.1: it speaks HTTP"),
        "noise": (None, bytes(range(200)), "127.0.0.1: it does not speak TLS"),
        "TLS 1.2": (
            anyone(own(homes, "east"), ssl.TLSVersion.TLSv1_2),
            FRAME,
            "it does not offer TLS 1.3",
        ),
        "oversized": (
            anyone(own(homes, "east")),
            b"\xff" * 4,
            "refused east at 127.0.0.1: it announces a frame of",
        ),
    }


def test_attackers_are_refused_and_named(job, homes):
    with open_wires(job, homes, "north") as (_, boxes, lines):
        for name, (settings, log, words) in attacks(homes).items():
            with contextlib.suppress(OSError):
                assert call(homes["north"].address, settings, log)[:5] != FRAME
            eventually(lambda words=words: any(words in line for line in lines))
            lines.clear()
            assert not boxes["north"].frames, name
        with pytest.raises(ssl.SSLError):  # the certificate of east with the key of a stranger
            anyone(Credentials(own(homes, "east").certificate, own(homes, "stranger").key))


def test_an_impostor_who_answers_for_a_site_gets_nothing(job, homes):
    host, port = homes["east"].address.split(":")
    settings = context(
        own(homes, "stranger"), [site.certificate for site in job.sites], server=True
    )
    received = []

    def answer(listener):
        with contextlib.suppress(OSError):
            while True:
                bare, _ = listener.accept()
                with (
                    contextlib.suppress(OSError),
                    settings.wrap_socket(bare, server_side=True) as link,
                ):
                    received.append(link.recv(100))

    with socket.create_server((host, int(port))) as listener:
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        with open_wires(job, homes, "north") as (wires, boxes, lines):
            eventually(lambda: any("ended the connection with east" in line for line in lines))
            wires["north"].send("east", b"secret")
            assert "its certificate is not that of a site" in " ".join(lines)
            assert not boxes["north"].peers
    assert not any(received)


def test_bytes_that_are_altered_or_replayed_on_their_way_end_the_connection(job, homes):
    """A proxy in front of north changes one byte of what east sends after the handshake, or sends
    it twice."""
    target = homes["north"].address.split(":")
    for change in (lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: data * 2):
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            open_wires(job, homes, "north") as (_, boxes, lines),
        ):
            bare = socket.create_connection(listener.getsockname())
            inside, _ = listener.accept()
            outside = socket.create_connection((target[0], int(target[1])))
            with contextlib.closing(outside), contextlib.closing(inside):
                threading.Thread(target=copy, args=(outside, inside), daemon=True).start()
                stop = threading.Event()
                threading.Thread(
                    target=copy, args=(inside, outside, stop, change), daemon=True
                ).start()
                with anyone(own(homes, "east")).wrap_socket(bare) as link:
                    eventually(lambda boxes=boxes: boxes["north"].peers == ["east"])
                    stop.set()
                    link.sendall(FRAME)
                    eventually(
                        lambda lines=lines: any(
                            "refused east at 127.0.0.1: " in line for line in lines
                        )
                    )
            # the replay, after what it repeats
            assert boxes["north"].frames in ([], [("east", b"hello")])


def copy(source, sink, altered=None, change=None):
    """Pass bytes on, changed once `altered` is set."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(change(data) if altered is not None and altered.is_set() else data)


@pytest.fixture
def relayed(job, homes, monkeypatch):
    """The job with two sites that can only call out, and its relay."""
    hidden = tuple(Site(site.name, site.certificate) for site in job.sites)
    sites = Job(hidden, job.problem, job.network, job.method, relay=homes["relay"].site)
    tapped = bytearray()
    lines = []
    relay = Relay(sites.consortium, own(homes, "relay"), lines.append)
    copied = Caller._copy
    monkeypatch.setattr(
        Caller, "_copy", lambda self, plain: (tapped.extend(plain), copied(self, plain))
    )
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(relay.start(homes["relay"].address), loop).result()
    yield sites, relay, tapped, lines
    asyncio.run_coroutine_threadsafe(relay.close(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_what_is_sent_last_arrives_with_the_end(homes):
    pinned = [homes[name].site.certificate for name in ("north", "east")]
    wires = {"north": bytearray(), "east": bytearray()}
    sessions = {
        name: TlsSession(context(own(homes, name), pinned, server=server), wires[name].extend,
                         server=server)
        for name, server in (("north", False), ("east", True))
    }  # fmt: skip

    def carry(sender, receiver):
        content = bytes(wires[sender])
        wires[sender].clear()
        return sessions[receiver].feed(content)

    for _ in range(2):
        carry("north", "east")
        carry("east", "north")
    assert sessions["east"].secured
    sessions["north"].send(b"why it ends")
    sessions["north"].end()
    assert carry("north", "east") == b"why it ends"
    assert sessions["east"].over


def test_the_relay_carries_what_it_cannot_read(relayed, homes):
    sites, _, tapped, lines = relayed
    marked = np.arange(12.0).tobytes()
    with open_wires(sites, homes, "north", "east") as (wires, boxes, _):
        eventually(lambda: boxes["north"].peers == ["east"] and boxes["east"].peers == ["north"])
        wires["north"].send("east", marked)
        eventually(lambda: boxes["east"].frames == [("north", marked)])
        wires["east"].send("north", marked * 10)
        eventually(lambda: boxes["north"].frames == [("east", marked * 10)])
    assert len(tapped) > 11 * len(marked)
    assert not any(marked[i : i + 8] in tapped for i in range(8, len(marked), 8))
    assert any("connected" in line for line in lines)


def test_the_relay_refuses_strangers_and_floods(relayed, homes):
    _, relay, tapped, lines = relayed
    cases = {
        (None, b"GET / HTTP/1.1\r\n\r\n"): "it speaks HTTP",
        (anyone(), b"CALL north\n"): "it shows no certificate",
        (
            anyone(own(homes, "stranger")),
            b"CALL north\n",
        ): "its certificate is not that of a site of this job",
        (
            anyone(own(homes, "south")),
            b"CALL north\n",
        ): "south calls north, which is no neighbour of it",
        (
            anyone(own(homes, "south")),
            b"x" * 100,
        ): "refused south at 127.0.0.1: it does not say whom it calls",
        (anyone(own(homes, "south")), b"CALL west\nmore"): "it does not say whom it calls",
    }
    for (settings, log), words in cases.items():
        with contextlib.suppress(OSError):
            call(homes["relay"].address, settings, log)
        eventually(lambda words=words: any(words in line for line in lines))
    relay.gate.known.clear()
    with flooded(homes["relay"].address):
        eventually(lambda: any("too many connections at once" in line for line in lines))
        assert len(relay.gate.waiting) <= 64
        assert not relay.callers
        with open_wires(relayed[0], homes, "north", "east") as (_, boxes, _):
            eventually(lambda: boxes["north"].peers == ["east"])
    tapped.clear()
    assert not tapped
    assert not relay.callers


@pytest.mark.parametrize("turns", range(8))
def test_who_calls_while_the_relay_closes_is_not_left_waiting(job, homes, turns):
    """Accepting a connection takes several turns of the event loop; it may close at each of
    them."""
    host, port = homes["relay"].address.split(":")

    async def call_and_close():
        relay = Relay(job.consortium, own(homes, "relay"))
        await relay.start(homes["relay"].address)
        with socket.create_connection((host, int(port)), timeout=5) as caller:
            for _ in range(turns):
                await asyncio.sleep(0)
            await relay.close()
            with contextlib.suppress(ConnectionError):
                assert caller.recv(1) == b""  # and no timeout

    asyncio.run(call_and_close())


class Knock:
    """A connection whose handshake takes some time."""

    def __init__(self, spoke=False):
        self.spoke = spoke
        self.ended = False

    def give_way(self):
        self.ended = True


def test_a_gate_lets_in_who_comes_however_many_others_wait():
    lines = []
    gate = Gate(FewLines(lines.append), places=6)
    gate.known = {"10.0.0.1"}
    first = Knock()
    gate.enter(first, "10.0.0.7")
    crowd = [Knock(spoke=n == 0) for n in range(50)]
    for n, knock in enumerate(crowd):
        gate.enter(knock, f"2001:db8::{n:x}")  # one network, and so one crowd
    # the one that speaks stays longest; then those that came last
    assert [knock for knock in crowd if not knock.ended] == [crowd[0], *crowd[-4:]]
    assert not first.ended
    friend = Knock()
    gate.enter(friend, "10.0.0.1")
    for n in range(50):
        gate.enter(Knock(), f"10.0.1.{n}")
    assert not friend.ended
    assert len(gate.waiting) == 7
    gate.leave(friend)
    assert len(gate.waiting) == 6
    assert 1 <= len(lines) <= 10


def test_a_handshake_has_a_few_seconds_at_a_site_and_at_the_relay(relayed, homes):
    _, _, _, lines = relayed
    sites = relayed[0]
    plain = dataclasses.replace(sites, sites=tuple(homes[name].site for name in NAMES))
    with open_wires(plain, homes, "north") as (_, _, own):
        held = []
        for name in ("north", "relay"):
            host, port = homes[name].address.split(":")
            held.append(socket.create_connection((host, int(port)), timeout=8))
        for link in held:
            with link:
                assert link.recv(1) == b""  # before the timeout
        eventually(lambda: any("no handshake within 3 seconds" in line for line in own))
    eventually(lambda: any("no request within 3 seconds" in line for line in lines))


def test_a_neighbour_that_sends_too_much_is_read_slowly(job, homes, monkeypatch):
    monkeypatch.setattr("decibo.silo.tls.BYTES", 1 << 16)
    with open_wires(job, homes, "north", "east") as (wires, boxes, lines):
        eventually(lambda: "east" in wires["north"].links and "north" in wires["east"].links)
        for _ in range(200):
            wires["east"].send("north", bytes(900))
        eventually(lambda: not wires["north"].links["east"].transport.is_reading())
        eventually(lambda: len(boxes["north"].frames) == 200)
    assert any("east sends more than" in line and "is slowed down" in line for line in lines)


def test_networks_are_addresses_and_of_ipv6_the_first_half():
    assert network_of("2001:db8:1:2:3::4") == network_of("2001:db8:1:2::9") == "2001:db8:1:2::/64"
    assert network_of("2001:db8:1:3::9") != network_of("2001:db8:1:2::9")
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1") == "10.0.0.1"
    assert network_of("fe80::1%eth0") == "fe80::/64"
    assert network_of("?") == "?"


@contextlib.contextmanager
def flooded(address, word=b""):
    """Somebody without a key makes as many connections as it can, and keeps them."""
    host, port = address.split(":")
    end = threading.Event()
    held = []

    def knock():
        while not end.is_set():
            with contextlib.suppress(OSError):
                held.append(socket.create_connection((host, int(port)), timeout=5))
                held[-1].sendall(word)
            while len(held) > 300:
                held.pop(0).close()
            time.sleep(0.001)

    thread = threading.Thread(target=knock, daemon=True)
    thread.start()
    try:
        eventually(lambda: len(held) > 150)
        yield held
    finally:
        end.set()
        thread.join()
        for link in held:
            link.close()


def hello():
    """The first words of a handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        anyone().wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("word", [b"", hello()], ids=["silent", "hello"])
@pytest.mark.parametrize("address", ["of the job", "elsewhere"])
def test_a_stranger_who_takes_all_places_does_not_keep_a_neighbour_out(job, homes, word, address):
    with open_wires(job, homes, "north") as (wires, boxes, lines):
        if address == "elsewhere":  # else the stranger is in places that are set aside
            eventually(lambda: wires["north"].gate.known)
            wires["north"].gate.known.clear()
        with flooded(homes["north"].address, word):
            assert len(wires["north"].gate.waiting) <= 64
            with open_wires(job, homes, "east"):
                eventually(lambda: boxes["north"].peers == ["east"])
        assert len(lines) < 200


def test_a_link_without_an_end_that_can_be_called_needs_a_relay(job, homes):
    hidden = tuple(Site(site.name, site.certificate) for site in job.sites)
    sites = Job(hidden, job.problem, job.network, job.method)
    with pytest.raises(InputError, match="neither has an address at which it can be called"):
        TlsWire(sites.consortium, "north", homes["north"])


CA = """
[ca]
default_ca = own
[own]
database = index
new_certs_dir = .
rand_serial = yes
policy = any
[any]
commonName = supplied
"""


@pytest.mark.parametrize("start", ["20000101000000Z", "20900101000000Z"], ids=["over", "to come"])
def test_a_clock_that_is_wrong_keeps_no_site_out(job, homes, tmp_path, start):
    """A pinned certificate is that of the site, whatever the dates in it."""
    home = Identity.make(tmp_path / "east", "east", f"127.0.0.1:{free_port()}")
    (tmp_path / "config").write_text(CA)
    (tmp_path / "index").touch()
    key = home.folder / "east.key"
    for words in (
        f"req -new -key {key} -subj /CN=east -out request",
        f"ca -batch -notext -config config -selfsign -keyfile {key} -md sha256 -in request"
        f" -startdate {start} -enddate {start[:3]}1{start[4:]} -out {home.folder / 'east.pem'}",
    ):
        subprocess.run(["openssl", *words.split()], cwd=tmp_path, check=True, capture_output=True)
    sites = tuple(home.site if site.name == "east" else site for site in job.sites)
    other = Job(sites, job.problem, job.network, job.method)
    with open_wires(other, homes | {"east": home}, "north", "east") as (_, boxes, _):
        eventually(lambda: boxes["north"].peers == ["east"] and boxes["east"].peers == ["north"])


def test_four_sites_over_tls_compute_what_the_simulation_does(job, homes, tmp_path):
    short = Job(job.sites, job.problem, job.network, job.method, steps=30, patience=30.0)
    warm(short)
    lines = []
    place = lambda name: {
        "home": homes[name].folder,
        "folder": tmp_path / name,
        "log": lines.append,
    }
    results = in_threads(lambda name: join(short, site=name, data=None, **place(name)))
    assert not [result for result in results.values() if isinstance(result, BaseException)]
    reference = decibo.solve(job.problem, job.network, job.method, steps=30, measures=[])
    own = np.stack([results[name].x for name in NAMES])
    np.testing.assert_allclose(own, reference.agents.x, atol=1e-12)
    assert not any("refused" in line for line in lines)


def test_sites_that_do_not_wait_over_tls(job, homes, tmp_path):
    outer = lambda x, y, d: jnp.sum((x - d) ** 2)
    inner = lambda x, y, d: jnp.sum(y**2)
    problem = decibo.Problem(outer, inner, np.arange(4.0)[:, None], np.zeros(1), np.zeros(1))
    along = decibo.compose(
        decibo.direction.single(), decibo.consensus.robust_tracking(), x=0.2, y=0.2
    )
    free = dataclasses.replace(
        job, problem=problem, method=along, mode="free", steps=2000, rest=1e-7, again=0.05
    )
    lines = []
    place = lambda name: {
        "home": homes[name].folder,
        "folder": tmp_path / name,
        "log": lines.append,
    }
    results = in_threads(lambda name: join(free, site=name, data=None, **place(name)))
    assert [float(results[name].x[0]) for name in NAMES] == pytest.approx([1.5] * 4, abs=1e-5)
    assert not any("refused" in line for line in lines)
