"""Estimators at sites: each owner has its own table, and gets the model of a fit on all tables in
one place."""

import re
import threading
import time
from fractions import Fraction

import numpy as np
import pandas
import pytest
from sklearn.pipeline import make_pipeline

import decibo
from decibo.cli.join import join as command
from decibo.errors import InputError, LostError
from decibo.silo import Consortium, Identity, Memory, Site, read_job
from decibo.silo.collectives import Collectives, tree_of
from decibo.silo.estimator_job import estimator_of
from decibo.silo.frame import Kind, unpack
from decibo.silo.joint_fit import MOST
from decibo.silo.secure_sum import SecureSums
from decibo.sklearn import SiloEncoder, SiloLogisticRegression, SiloRidge, SiloTrust, load, save
from decibo.sklearn.model import SiloModel
from helpers.sites import in_threads

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
NAMES = ("east", "north", "west")
SITES = tuple(map(Site, NAMES))
PATH = decibo.networks.path(3)
GROUPS = np.repeat(NAMES, [14, 14, 20])
OPTIONS = {"random_state": 0, "validation": 0.5, "steps": 30}


def rows_of(name):
    return np.equal(GROUPS, name)


def tables():
    """Numbers with gaps, text, and classes, at three sites of unequal size."""
    random = np.random.default_rng(0)
    age = random.normal(60, 9, len(GROUPS))
    score = random.normal(size=len(GROUPS))
    sick = np.where(score + (age - 60) / 9 + random.normal(size=len(GROUPS)) > 0, "yes", "no")
    plan = random.choice(["gold", "iron", "tin"], len(GROUPS))
    plan[(plan == "tin") & (GROUPS != "west")] = "iron"  # a category that only one site has
    age[random.random(len(GROUPS)) < 0.1] = np.nan
    return pandas.DataFrame({"age": age, "score": score, "plan": plan}), sick


def consortium(name, memory, folder, **options):
    place = folder / name
    return Consortium(
        SITES,
        PATH,
        name,
        folder=place,
        wire=memory.wire(name),
        **{"again": 0.1, "patience": 30.0} | options,
    )


def at_sites(model, X, y, folder, more=None, **options):
    """What a fit at each site returns or raises."""
    memory = Memory()

    def one(name):
        own = rows_of(name)
        return model().fit(
            X[own], y[own], **(more or {}), silo=consortium(name, memory, folder, **options)
        )

    return in_threads(one, NAMES)


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """A fit at three sites that nothing disturbs: its folder and the models."""
    folder = tmp_path_factory.mktemp("calm")
    X, y = tables()
    models = at_sites(lambda: SiloLogisticRegression(**OPTIONS), X, y, folder, checkpoint_every=4)
    return folder, models


def test_owners_get_the_model_of_all_tables_in_one_place(calm, tmp_path):
    X, y = tables()
    reference = make_pipeline(SiloEncoder(), SiloLogisticRegression(network=PATH, **OPTIONS))
    reference.fit(X, y, silologisticregression__groups=GROUPS)
    whole = reference[-1]
    for name, model in calm[1].items():
        assert list(model.silos_) == list(NAMES)
        assert model.n_iter_ == whole.n_iter_
        np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-7)
        np.testing.assert_allclose(model.penalty_, whole.penalty_, rtol=1e-7)
        np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(X), atol=1e-7)
        np.testing.assert_allclose(
            model.solution_.history["residual"],
            whole.solution_.history["residual"],
            rtol=1e-6,
            err_msg=name,
        )
    # the same bits at all sites
    assert len({model.coef_.tobytes() for model in calm[1].values()}) == 1
    loaded = load(save(calm[1]["north"], tmp_path / "model.json"))
    np.testing.assert_array_equal(loaded.predict(X), calm[1]["north"].predict(X))
    with pytest.raises(InputError, match="'plan'"):
        loaded.predict(X[["age", "score"]])


class Dying:
    """A wire whose site is killed when it sends its n-th frame."""

    def __init__(self, wire, after):
        self.wire = wire
        self.left = after
        self.start = wire.start
        self.close = wire.close

    def send(self, peer, content):
        if threading.current_thread().name == "dying":
            self.left -= 1
            if self.left < 0:
                raise MemoryError
        self.wire.send(peer, content)


def test_a_site_that_is_killed_goes_on_with_the_same_fit(calm, tmp_path):
    """Once while the sites agree, which is before its first checkpoint, once after it, and once
    after the end."""
    X, y = tables()
    memory = Memory()
    kills = []

    def one(name):
        own = rows_of(name)
        site = lambda: consortium(name, memory, tmp_path, checkpoint_every=4)
        if name == "north":
            threading.current_thread().name = "dying"
            for after in (20, 150):
                wire = Dying(memory.wire(name), after)
                dying = Consortium(
                    SITES,
                    PATH,
                    name,
                    folder=tmp_path / name,
                    wire=wire,
                    checkpoint_every=4,
                    again=0.1,
                )
                with pytest.raises(MemoryError):
                    SiloLogisticRegression(**OPTIONS).fit(X[own], y[own], silo=dying)
                kills.append(sorted(place.name for place in (tmp_path / name).glob("step-*")))
            threading.current_thread().name = "living"
        return SiloLogisticRegression(**OPTIONS).fit(X[own], y[own], silo=site())

    models = in_threads(one, NAMES)
    assert kills[0] == []
    assert kills[1] != []
    assert [models[name].coef_.tobytes() for name in NAMES] == [
        calm[1][name].coef_.tobytes() for name in NAMES
    ]
    again = SiloLogisticRegression(**OPTIONS).fit(
        X[rows_of("north")],
        y[rows_of("north")],
        silo=consortium("north", memory, tmp_path, checkpoint_every=4),
    )  # nobody else is there any more
    assert again.coef_.tobytes() == models["north"].coef_.tobytes()
    other = X[rows_of("north")].assign(score=0.0)
    with pytest.raises(InputError, match="data"):
        SiloLogisticRegression(**OPTIONS).fit(
            other,
            y[rows_of("north")],
            silo=consortium("north", memory, tmp_path, checkpoint_every=4),
        )


class Stated(Exception):  # noqa: N818
    """Ends a fit that has stated its problem."""


def stated(monkeypatch, fit, folder, groups, names=NAMES, network=PATH, memory=None, **options):
    """The data of the problem in one place, and that of each site; nothing is compiled."""

    def stop(self, problem, census):
        raise Stated(problem, census)

    monkeypatch.setattr(SiloModel, "_solve", stop)
    memory = memory or Memory()
    sites = tuple(map(Site, names))

    def one(name):
        place = {"folder": folder / name, "wire": memory.wire(name), "again": 0.1}
        return fit(groups == name, {"silo": Consortium(sites, network, name, **place, **options)})

    apart = {
        name: found.args[0].data(number)
        for number, (name, found) in enumerate(in_order(in_threads(one, names), names))
    }
    with pytest.raises(Stated) as caught:
        fit(np.ones(len(groups), bool), {"groups": groups})
    return caught.value.args[0].data, apart


def in_order(results, names):
    for name in names:
        if not isinstance(results[name], Stated):
            raise results[name]
        yield name, results[name]


def same_problem(together, apart):
    """Whether sites hold what they hold in one place, less its padding."""
    for number, own in enumerate(apart.values()):
        rows = len(own["features"])
        for key, leaf in own.items():
            whole = together[key][number]
            axis = {
                "features": 0,
                "targets": 0,
                "training": -1,
                "validation": -1,
                "judging": -1,
                "free": -1,
                "sure": -1,
            }.get(key)
            if axis is not None:
                padding = np.take(whole, range(rows, whole.shape[axis]), axis)
                assert not padding.any()
                whole = np.take(whole, range(rows), axis)
            np.testing.assert_allclose(leaf, whole, rtol=1e-12, atol=1e-12, err_msg=key)


def test_four_real_hospitals_state_the_problem_of_one_place(monkeypatch, tmp_path):
    """With the features as they are; examples/hospitals.py has raw tables with text, and compares
    predictions."""
    hearts = decibo.data.heart_disease()
    names = np.char.replace(hearts.groups, " ", "-")
    fit = lambda own, where: SiloLogisticRegression(random_state=0).fit(hearts.features[own], hearts.labels[own], **{
        key: names[own] if key == "groups" else value for key, value in where.items()})  # fmt: skip
    together, apart = stated(
        monkeypatch, fit, tmp_path, names, sorted(set(names.tolist())), decibo.ring(4)
    )
    assert [len(own["features"]) for own in apart.values()] == [172, 199, 85, 30]
    same_problem(together, apart)


def test_ridge_states_the_problem_of_one_place(monkeypatch, tmp_path):
    random = np.random.default_rng(1)
    X = random.normal(3, 2, (len(GROUPS), 3))
    y = X @ [1.0, -2.0, 0.5] + random.normal(size=len(GROUPS))
    fit = lambda own, where: SiloRidge(random_state=0).fit(X[own], y[own], **where)
    same_problem(*stated(monkeypatch, fit, tmp_path, GROUPS))


@pytest.mark.parametrize("judged", [True, False])
def test_trust_states_the_problem_of_one_place(monkeypatch, tmp_path, judged):
    random = np.random.default_rng(2)
    X = random.normal(size=(len(GROUPS), 2))
    y = (X[:, 0] > 0).astype(int)
    checked = random.random(len(GROUPS)) < 0.4
    fit = lambda own, where: SiloTrust(random_state=0).fit(
        X[own], y[own], checked=checked[own] if judged else None, **where
    )
    together, apart = stated(monkeypatch, fit, tmp_path, GROUPS)
    same_problem(together, apart)
    assert [own["own"].argmax() for own in apart.values()] == [0, 1, 2]


# Secure sums


class Tapped(Memory):
    """A network that writes down the numbers that are said."""

    def __init__(self):
        super().__init__()
        self.said = []

    def send(self, sender, peer, content):
        frame = unpack(content, MOST)
        if frame.kind is Kind.DATA:
            self.said.append((sender, frame.numbers))
        super().send(sender, peer, content)


def test_with_secure_sums_the_problem_is_the_same_and_no_sum_of_a_site_is_said(
    monkeypatch, tmp_path
):
    random = np.random.default_rng(1)
    X = random.normal(3, 2, (len(GROUPS), 3))
    y = X @ [1.0, -2.0, 0.5]
    fit = lambda own, where: SiloRidge(random_state=0).fit(X[own], y[own], **where)
    own_sums = {name: [rows_of(name).sum(), *X[rows_of(name)].sum(axis=0)] for name in NAMES}
    for secure in (False, True):
        memory = Tapped()
        network = decibo.complete(3)
        together, apart = stated(
            monkeypatch,
            fit,
            tmp_path / str(secure),
            GROUPS,
            network=network,
            memory=memory,
            secure_sums=secure,
        )
        same_problem(together, apart)
        found = {
            (name, k)
            for name, sums in own_sums.items()
            for sender, numbers in memory.said
            for k, number in enumerate(sums)
            if sender == name
            and numbers.dtype == float
            and np.isclose(numbers, number, rtol=1e-12).any()
        }
        # all but those of the root of the tree
        leaves = {(name, k) for name in NAMES[1:] for k in range(4)}
        assert found >= leaves if not secure else not found


def test_a_secure_sum_is_exact_and_what_a_site_says_for_it_is_noise():
    """The numbers are far apart in size; the twin adds fractions."""
    own = np.array([[1e14, -0.1, 3.0], [-1e14, 1e-9, 4.0], [0.25, 7e-4, -7.0]])
    secret = lambda i, j: bytes([min(i, j), max(i, j)] * 16)
    sums = [
        SecureSums(i, {j: secret(i, j) for j in range(3) if j != i}, lambda: (2, 5))
        for i in range(3)
    ]
    said = np.stack([each.hidden(row) for each, row in zip(sums, own, strict=True)])
    exact = [float(sum(map(Fraction, column))) for column in own.T]
    np.testing.assert_allclose(SecureSums.opened(said), exact, rtol=0, atol=1e-18)
    np.testing.assert_array_equal(SecureSums.opened(said), SecureSums.opened(said[::-1]))
    for row in said:  # neither alone nor two of three
        assert np.abs(SecureSums.opened(row[None])).min() > 1e15
    assert np.abs(SecureSums.opened(said[:2]) - own[:2].sum(axis=0)).min() > 1e15
    later = SecureSums(0, sums[0].secret_of, lambda: (2, 6)).hidden(own[0])
    assert not (later == said[0]).any()
    for bad in (np.nan, np.inf, 1e15):
        with pytest.raises(OverflowError, match="beyond 3e\\+14"):
            sums[0].hidden(np.array([bad]))


@pytest.mark.slow
def test_with_secure_sums_a_site_that_is_killed_goes_on_with_the_same_fit(tmp_path):
    """North is killed while the sites agree, and in the run: if it said anything else again,
    nothing would cancel."""
    X, y = tables()
    options = {"checkpoint_every": 4, "again": 0.1, "patience": 30.0}
    found = {}
    for secure in (False, True):
        memory = Memory()

        def one(name, memory=memory, secure=secure):
            own = rows_of(name)
            fit = lambda wire: SiloLogisticRegression(**OPTIONS).fit(X[own], y[own], silo=Consortium(
                SITES, decibo.complete(3), name, folder=tmp_path / str(secure) / name, wire=wire, secure_sums=secure,
                **options))  # fmt: skip
            if name == "north" and secure:
                threading.current_thread().name = "dying"
                for after in (30, 100):
                    with pytest.raises(MemoryError):
                        fit(Dying(memory.wire(name), after))
                threading.current_thread().name = "living"
            return fit(memory.wire(name))

        models = in_threads(one, NAMES)
        assert len({models[name].coef_.tobytes() for name in NAMES}) == 1
        found[secure] = models["west"]
    np.testing.assert_allclose(found[True].coef_, found[False].coef_, rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        *(each.solution_.history["residual"] for each in found.values()), rtol=1e-6
    )


@pytest.mark.slow
def test_secure_sums_of_another_table_need_another_run(tmp_path):
    """Before the first checkpoint too: the difference of two messages would be the row that has
    changed."""
    table = pandas.DataFrame({"age": [61.0, 47.0, 70.0], "ward": ["a", "b", None]})
    y, checked = np.array(["sick", "well", "sick"], dtype=object), np.array([True, False, True])
    older, moved = table.assign(age=[61.0, 48.0, 70.0]), table.assign(ward=["a", "b", "b"])

    def fit(X, y, checked, run=""):
        place = {
            "folder": tmp_path / run,
            "wire": Memory().wire("north"),
            "patience": 1e-3,
            "run": run,
        }
        silo = Consortium(SITES, decibo.complete(3), "north", secure_sums=True, **place)
        SiloTrust(random_state=0).fit(X, y, checked=checked, silo=silo)

    with pytest.raises(LostError):  # nobody else is there
        fit(table, y, checked)
    for other in (
        (older, y, checked),
        (moved, y, checked),
        (table, np.roll(y, 1), checked),
        (table, y, ~checked),
    ):
        with pytest.raises(InputError, match="began with other data"):
            fit(*other)
    with pytest.raises(LostError):
        fit(table, y, checked)
    with pytest.raises(LostError):
        fit(older, y, checked, run="may")


def test_where_there_can_be_no_secure_sums_of_estimators():
    for network, names in ((PATH, NAMES), (decibo.complete(2), NAMES[:2])):
        with pytest.raises(InputError, match="three sites or more, all of them neighbours"):
            Consortium(tuple(map(Site, names)), network, "east", secure_sums=True)
    with pytest.raises(InputError, match="secure_sums must be True or False"):
        Consortium(SITES, decibo.complete(3), "east", secure_sums="yes")  # type: ignore[arg-type]


# Disagreements


def errors(change, tmp_path):
    """What each site says if one of them is changed by change(name, X, y, parameters)."""
    X, y = tables()
    memory = Memory()

    def one(name):
        own = rows_of(name)
        parameters = dict(OPTIONS)
        table, labels, more = change(name, X[own].copy(), y[own], parameters)
        # a site that comes when it has left does not meet it
        while name == "north" and len(memory.wires) < 2:
            time.sleep(0.005)
        return SiloLogisticRegression(**parameters).fit(
            table, labels, silo=consortium(name, memory, tmp_path), **more
        )

    return {
        name: str(found)
        for name, found in in_threads(one, NAMES).items()
        if isinstance(found, InputError)
    }


def other_lam(name, X, y, parameters):
    parameters["lam"] = 30.0 if name == "north" else 20.0
    return X, y, {}


def other_columns(name, X, y, parameters):
    return X.rename(columns={"score": "points"}) if name == "north" else X, y, {}


def other_kind(name, X, y, parameters):
    return X.assign(score=X.score.round().astype(str)) if name == "north" else X, y, {}


def other_labels(name, X, y, parameters):
    return X, (y == "yes").astype(int) if name == "north" else y, {}


def other_capitals(name, X, y, parameters):
    return X, np.char.upper(y) if name == "north" else y, {}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (other_lam, [r"north runs another job \(lam: 30.0 there, 20.0 here\)"]),
        (other_columns, [r"columns: age, points, plan there, age, score, plan here"]),
        (other_kind, ["Column 'score' holds text in north and numbers"]),
        (other_labels, ["classes are numbers at north and text at east and west"]),
        (
            other_capitals,
            ["class '(no|yes)' at east and the class '(NO|YES)' at north differ only in capitals"],
        ),
    ],
)
def test_disagreements_are_named_at_all_sites(change, words, tmp_path):
    said = errors(change, tmp_path)
    assert sorted(said) == sorted(NAMES)
    for word in words:
        found = [text for name, text in said.items() if name != "north"]
        assert all(re.search(word, text) for text in found), said


def test_what_a_site_can_tell_by_itself_is_refused_before_it_calls_anybody(tmp_path):
    X, y = tables()
    site = consortium("north", Memory(), tmp_path)
    refused = [
        ({"silo": "nowhere.toml"}, {}, "nowhere.toml"),
        ({"silo": 3}, {}, "path of a job file"),
        ({"silo": site, "groups": GROUPS}, {}, "both passed"),
        ({"silo": site}, {"checkpoint": tmp_path}, "its own folder"),
        ({"silo": site}, {"random_state": np.random.RandomState(0)}, "must be an integer"),
        ({"silo": site}, {"lam": -1.0}, "lam"),
    ]
    for arguments, parameters, words in refused:
        with pytest.raises(InputError, match=words):
            SiloLogisticRegression(**parameters).fit(X, y, **arguments)
    with pytest.raises(InputError, match="no site 'south'"):
        Consortium(SITES, PATH, "south")
    with pytest.raises(InputError, match="infinite"):
        SiloLogisticRegression().fit(np.array([[np.inf], [1.0]]), [0, 1], silo=site)


def test_the_estimator_of_a_job_file():
    model, label = estimator_of("job.toml", {"name": "SiloRidge", "label": "cost", "lam": 5.0})
    assert (model.lam, label) == (5.0, "cost")
    for table, words in [
        ({"name": "SiloRige", "label": "cost"}, "SiloRidge"),
        ({"name": "SiloRidge"}, "labels"),
        ({"name": "SiloRidge", "label": "cost", "network": "ring"}, "network"),
    ]:
        with pytest.raises(InputError, match=words):
            estimator_of("job.toml", table)


def test_a_site_without_a_table_is_told_where_to_name_it(tmp_path):
    home = Identity.make(tmp_path / "north", "north", "127.0.0.1:20000")
    job = tmp_path / "job.toml"
    job.write_text(
        '[estimator]\nname = "SiloRidge"\nlabel = "cost"\n\n[network]\nname = "complete"\n\n'
        + home.card()
    )
    with pytest.raises(InputError, match=r"site.toml does not say where this site's samples are"):
        command(job, home.folder, False, (), False, True)
    with pytest.raises(InputError, match="names an estimator"):
        read_job(job)
    site = Consortium.at(job, home.folder, run="may")
    assert (site.site, site.peers, site.run) == ("north", [], "may")
    job.write_text(job.read_text() + "\n[run]\nsteps = 3\n")
    with pytest.raises(InputError, match="no key steps"):
        Consortium.at(job, home.folder)


# Meetings


@pytest.mark.parametrize(
    "network",
    [
        decibo.networks.path(5),
        decibo.networks.star(5),
        decibo.ring(6),
        decibo.networks.grid(2, 3),
        decibo.complete(1),
    ],
    ids=repr,
)
def test_sums_maxima_and_words_reach_everybody_through_neighbours_only(network):
    """Every site talks to its neighbours through a barrier; what the others say is not in what it
    gets."""
    m = network.agents
    barrier = threading.Barrier(m)
    said = [np.zeros(0)] * m
    neighbours = {i: [j for j in range(m) if j != i and {i, j} in [set(edge) for edge in network.edges.tolist()]]
                  for i in range(m)}  # fmt: skip
    own = np.random.default_rng(0).normal(size=(m, 2))

    def talk(i):
        def exchange(vector):
            said[i] = vector
            barrier.wait()
            rows = np.stack([vector, *(said[j] for j in neighbours[i])])
            barrier.wait()
            return rows

        return exchange

    def one(i):
        collectives = Collectives(talk(i), network, [str(j) for j in range(m)], i)
        found = (
            collectives.share({"site": i, "words": "ü" * i}),
            collectives.total(own[i]),
            collectives.maximum(own[i]),
        )
        replayed = Collectives(None, network, collectives.names, i, past=collectives.results)
        assert replayed.share(0) == found[0]
        assert (replayed.total(0.0) == found[1]).all()
        return found

    results = in_threads(one, range(m))
    for words, total, largest in results.values():
        assert words == [{"site": j, "words": "ü" * j} for j in range(m)]
        np.testing.assert_allclose(total, own.sum(axis=0), atol=1e-14)
        assert total.tobytes() == results[0][1].tobytes()
        np.testing.assert_array_equal(largest, own.max(axis=0))
    assert sum(tree_of(network, i).level == 0 for i in range(m)) == 1


@pytest.mark.parametrize("option", ["personal", "errors"])
def test_what_needs_sums_after_the_run_is_refused_at_sites(option):
    X, y = tables()
    with pytest.raises(InputError, match="sums after the run"):
        SiloRidge(**{option: True}).fit(X, y, silo="job.toml")
