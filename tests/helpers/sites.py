"""Sites that are threads of this process: they share compiled programs, and a crash is an
exception."""

import threading

import networkx
import numpy as np

import decibo
from decibo.silo import Consortium, Job, Site, join
from decibo.silo.async_mailbox import AsyncMailbox
from decibo.silo.frame import unpack
from decibo.silo.mailbox import Mailbox
from decibo.silo.site_run import prepare

NAMES = ("north", "east", "south", "west")


def in_threads(work, names=NAMES):
    """What work(name) returns or raises, for all names at once."""
    results = {}

    def one(name):
        try:
            results[name] = work(name)
        except BaseException as error:
            results[name] = error

    threads = [
        threading.Thread(target=one, args=(name,), name=f"site {name}", daemon=True)
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a site does not end"
    return results


def make_job(problem, method, **options):
    defaults = {
        "steps": 30,
        "network": decibo.ring(4),
        "again": 0.05,
        "patience": 20.0,
        "checkpoint_every": 4,
    }
    sites = tuple(map(Site, options.pop("sites", NAMES)))
    return Job(sites, problem, method=method, **defaults | options)


def warm(job):
    """Compile the programs of the sites once, before all of them need them at the same time."""
    run = prepare(job, NAMES[0], None)
    echo = lambda vector: np.stack([vector] * (1 + len(run.peers)))
    run.agent.step(run.agent.begin(run.first, echo), 0, echo)


def run_all(job, folder, memory, **options):
    """All sites of a job, in memory; raises what any of them raises."""
    warm(job)
    run = lambda name: join(
        job, site=name, data=None, folder=folder / name, wire=memory.wire(name), **options
    )
    results = in_threads(run)
    for result in results.values():
        if isinstance(result, BaseException):
            raise result
    return results


# What only talks

JOB = bytes(range(16))
ABC = ("a", "b", "c", "d")
PATH = {"a": ["b"], "b": ["a", "c"], "c": ["b", "d"], "d": ["c"]}


def talks(kind, wire, me, options):
    """A mailbox of this kind; what is not of the consortium stays an option of it."""
    peers = options.pop("peers", PATH[me])
    graph = networkx.Graph()
    graph.add_nodes_from(ABC)
    graph.add_edges_from((me, peer) for peer in peers)
    graph.add_edges_from((peers[0], name) for name in ABC if name not in (me, *peers))
    network = decibo.networks.from_graph(graph)
    names = ("again", "patience", "log", "same_programs")
    own = {"again": 0.02, "patience": 20.0}
    own |= {each: options.pop(each) for each in names if each in options}
    consortium = Consortium(tuple(map(Site, ABC)), network, me, **own)
    return kind(wire, consortium, **{"job": JOB, "terms": {"steps": "10"}, "most": 100} | options)


def make_mailbox(wire, me, **options):
    return talks(Mailbox, wire, me, {"keep": 8} | options)


def make_async_mailbox(wire, me, **options):
    return talks(AsyncMailbox, wire, me, {"width": 3} | options)


def greeted(mailbox):
    """A mailbox whose neighbours have said that they run the same job."""
    mailbox.greeted.update(dict.fromkeys(mailbox.peers, ""))
    return mailbox


class Changing:
    """A wire that sends other frames than those it is given: change(peer, frame, content) ->
    contents."""

    def __init__(self, wire, change):
        self.wire = wire
        self.change = change

    def start(self, receiver):
        self.wire.start(receiver)

    def send(self, peer, content):
        for each in self.change(peer, unpack(content, 1 << 20), content):
            self.wire.send(peer, each)

    def close(self):
        self.wire.close()


class Silent:
    """A wire that keeps what is sent."""

    def __init__(self):
        self.sent = []

    def start(self, receiver):
        pass

    def send(self, peer, content):
        self.sent.append((peer, unpack(content, 10**6)))

    def close(self):
        pass


class Killed(BaseException):
    """A crash: nothing is written, and memory is lost."""


class Mortal:
    """A wire whose site crashes after so many sends."""

    def __init__(self, wire, life):
        self.wire = wire
        self.life = life

    def start(self, receiver):
        self.wire.start(receiver)

    def send(self, peer, content):
        # and not that of a neighbour
        if threading.current_thread().name == f"site {self.wire.name}":
            self.life -= 1
            if self.life < 0:
                self.wire.close()
                raise Killed
        self.wire.send(peer, content)

    def close(self):
        self.wire.close()
