"""The page, opened and clicked through in a real browser."""

import base64
import hashlib
import json
import re
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from html.parser import HTMLParser

import networkx
import numpy as np
import pytest

import decibo
from decibo.errors import InputError
from decibo.files import encode_record
from decibo.measure.cost import Cost
from decibo.report import report, write_run
from decibo.runs import folder
from helpers.browser import chromium
from helpers.runs import METHOD, PROBLEM, RING, curve, made_up, written

NONE = "\N{EN DASH}"
NASTY = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)> & \"quoted\" 'single' "
    "{{ data }} {% raw %} {0} \u2028 漢字"
)
FALLING = 10.0 ** -np.linspace(0, 9, 91)
LABELLED = decibo.from_graph(
    networkx.relabel_nodes(
        networkx.cycle_graph(4), dict(enumerate(["alice", "bob", "carol", "dan"]))
    )
)


def folders(place):
    """Three runs: one falls, one has a floor and its own network, one diverges and has a nasty
    name."""
    falling = curve(FALLING) | {"phi": 5 + FALLING, "consensus_x": np.append(0.0, FALLING[1:])}
    written(place / "a", falling, label="falls")
    written(
        place / "b",
        curve(FALLING + 1e-5),
        label="floor",
        network=decibo.networks.directed_ring(5),
        seconds=4.0,
    )
    written(
        place / "c",
        curve([1.0, 1e5, 1e200, np.inf]),
        label=NASTY,
        status="diverged",
        message=f"Gone. {NASTY}",
    )
    return place


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    place = tmp_path_factory.mktemp("page")
    return report(folders(place / "runs"), place / "report.html")


@pytest.fixture
def opened(browser):
    """A function that opens a file; at the end nothing may have gone wrong or out."""
    messages = []
    requests = []
    contexts = []

    def go(path, **context):
        contexts.append(
            browser.new_context(**{"viewport": {"width": 1100, "height": 900}} | context)
        )
        page = contexts[-1].new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("dialog", lambda dialog: (messages.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        return page

    yield go
    for context in contexts:
        context.close()
    assert not messages
    assert [url for url in requests if not url.startswith("blob:")] == requests[:1]
    assert requests[0].startswith("file:")


@pytest.fixture
def page(opened, path):
    return opened(path)


def drawn(page):
    """The numbers of the lines that are drawn."""
    return sorted(
        int(each.get_attribute("data-line"))
        for each in page.query_selector_all("#chart [data-line]")
    )


def shape(page, line=0):
    return page.get_attribute(f'#chart [data-line="{line}"]', "d")


def ticks(page):
    return page.locator("#chart > g").first.locator("text").all_text_contents()


def point_at(page, x, y):
    """Move the mouse to this fraction of the chart."""
    page.locator("#chart").scroll_into_view_if_needed()
    box = page.locator("#chart").bounding_box()
    page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])


def test_everything_is_there_and_nothing_hostile_runs(page):
    assert drawn(page) == [0, 1, 2]
    assert page.locator("#runs tbody tr").count() == 3
    assert NASTY in page.locator("#legend").inner_text().replace("\n", "")
    badges = page.locator("#runs .badge").all_text_contents()
    assert [badge.split(" ", 1)[1] for badge in badges] == ["improving", "floor", "diverged"]
    assert "Gone." in page.locator("#runs .verdict").nth(2).inner_text()
    assert page.locator("svg.network").count() == 2
    assert page.locator("svg.network").nth(1).locator("circle").count() == 5
    # a directed ring has arrows
    assert page.locator("svg.network").nth(1).locator("polygon").count() == 5
    assert f"{decibo.ring(4).rho:.4g}" in page.locator("#networks").inner_text()
    assert page.locator("img").count() == 0


def test_the_measure_can_be_chosen(page):
    assert page.input_value("#measure") == "stationarity"  # which all three have
    before = shape(page)
    page.select_option("#measure", "phi")
    assert drawn(page) == [0, 1, 2]
    assert shape(page) != before
    assert shape(page, 1) == ""  # it did not record phi
    assert not page.is_checked("#log-y")  # phi goes from 6 to 5
    assert page.locator("#chart text").first.text_content().startswith("phi")


def test_the_axis_can_be_chosen(page):
    seen = {page.input_value("#axis"): ticks(page)}
    before = shape(page)
    for axis in ("work", "bytes", "seconds"):
        page.select_option("#axis", axis)
        seen[axis] = ticks(page)
    assert len({str(each) for each in seen.values()}) == 4
    assert "800" in seen["step"]  # of 900 steps
    assert "10,000" in seen["work"]  # of 900 steps, 3 gradients and 4 agents: 10,800
    assert "500k" in seen["bytes"]  # of 900 steps, 72 bytes and 8 links: 518,400
    assert shape(page) != before  # it took half as long as the other, and as many steps
    assert "divided equally" in page.inner_text("#axis-note")
    page.select_option("#axis", "step")
    assert page.inner_text("#axis-note") == ""


def test_both_scales_can_be_logarithmic(page):
    page.click("#legend button >> nth=2")
    assert page.is_checked("#log-y")
    log = shape(page)
    ends = [float(pair.split(",")[1]) for pair in re.findall(r"[\d.]+,[\d.]+", log)]
    np.testing.assert_allclose(np.diff(ends), np.diff(ends)[0], atol=0.11)  # a straight line
    page.uncheck("#log-y")
    assert shape(page) != log
    assert not any("⁻" in tick for tick in ticks(page))
    page.check("#log-y")
    assert shape(page) == log
    page.check("#log-x")
    assert shape(page).count("L") == log.count("L") - 1  # step 0 has no place on it
    assert "10²" in ticks(page)
    page.uncheck("#log-x")
    assert shape(page) == log


def test_lines_can_be_hidden_and_shown(page):
    entry = page.locator("#legend button").nth(1)
    entry.click()
    assert drawn(page) == [0, 2]
    assert page.locator("#legend button").nth(1).get_attribute("aria-pressed") == "false"
    page.locator("#legend button").nth(1).click()
    assert drawn(page) == [0, 1, 2]
    page.click("text=Hide all")
    assert drawn(page) == []
    assert "All lines are hidden." in page.locator("#chart").text_content()
    point_at(page, 0.5, 0.5)
    page.click("text=Show all")
    assert drawn(page) == [0, 1, 2]


def test_hovering_reads_out_the_nearest_point(page):
    assert page.is_hidden("#tip")
    point_at(page, 0.995, 0.88)  # the end of the line that falls
    tip = page.inner_text("#tip").splitlines()
    assert tip == ["falls", "stationarity 1.00e\N{MINUS SIGN}9", "step 900"]
    page.select_option("#axis", "bytes")
    point_at(page, 0.995, 0.88)
    assert page.inner_text("#tip").splitlines()[2] == "step 900, 518 kB"
    point_at(page, 0.98, 0.6)
    assert page.inner_text("#tip").startswith("floor")
    page.mouse.move(5, 5)
    assert page.is_hidden("#tip")


def test_arrow_keys_read_out_points(page):
    page.focus("#chart")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#tip").splitlines()[::2] == ["falls", "step 0"]
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#tip").splitlines()[2] == "step 10"
    page.keyboard.press("ArrowDown")
    assert page.inner_text("#tip").splitlines()[::2] == ["floor", "step 10"]


def test_the_picture_can_be_downloaded(page, tmp_path):
    page.click("#legend button >> nth=1")
    with page.expect_download() as download:
        page.click("#download")
    assert download.value.suggested_filename == "stationarity.svg"
    download.value.save_as(tmp_path / "a.svg")
    picture = ET.parse(tmp_path / "a.svg").getroot()
    text = (tmp_path / "a.svg").read_text()
    assert "var(" not in text
    assert {each.get("data-line") for each in picture.iter() if each.get("data-line")} == {"0", "2"}
    texts = ["".join(each.itertext()) for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "falls" in texts
    assert NASTY in texts
    assert "floor" not in texts


def test_the_table_of_targets(page):
    def rows():
        return [
            row.split("\t")[1:]
            for row in page.inner_text("#reach tbody").splitlines()
            if "\t" in row
        ]

    assert page.input_value("#target-measure") == "stationarity"
    assert rows() == [["200", "400", "600", "800"], ["210", "410", NONE, NONE], [NONE] * 4]
    assert page.locator("#reach .best").all_text_contents() == ["200", "400", "600", "800"]
    page.select_option("#currency", "work")
    assert rows()[0] == ["2,400", "4,800", "7,200", "9,600"]
    page.select_option("#currency", "bytes")
    assert rows()[0][0] == "115 kB"
    page.select_option("#currency", "seconds")
    assert rows()[0][0] == "444 ms"  # 200 of 900 steps in 2 seconds
    page.select_option("#target-measure", "consensus_x")
    assert page.inner_html("#reach") == ""
    assert "No run reached" in page.inner_text("#targets")
    assert "not positive at the start" in page.inner_text("#targets")


def test_the_table_of_targets_begins_with_a_measure_that_came_to_one(tmp_path):
    history = curve(np.full(91, 1.0)) | {"residual": FALLING}
    written(tmp_path / "run", history, network=decibo.complete(1))
    written(tmp_path / "other", history, network=LABELLED)
    text = report(tmp_path, tmp_path / "page.html").read_text()
    assert '"target":"residual"' in text
    assert ">alice</text>" in text
    assert text.count('<svg class="network"') == 1  # who is alone needs no drawing


def test_details_unfold_and_are_printed(page):
    first = page.locator("details").first
    assert not first.locator("dl").is_visible()
    first.locator("summary").click()
    assert "ahead(alpha=0.1" in first.locator("dl").inner_text()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details[open]").count() == 3
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 1


@pytest.mark.parametrize(
    ("width", "scheme"), [(360, "light"), (360, "dark"), (768, "dark"), (1600, "light")]
)
def test_every_width_and_scheme(opened, path, width, scheme):
    page = opened(path, color_scheme=scheme, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    back, ink = page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    bright = [sum(map(int, re.findall(r"\d+", colour)[:3])) / 3 for colour in (back, ink)]
    assert (
        (bright[0] > 200 and bright[1] < 60)
        if scheme == "light"
        else (bright[0] < 60 and bright[1] > 200)
    )


def test_the_chart_follows_the_width(page):
    wide = page.get_attribute("#chart", "viewBox")
    page.set_viewport_size({"width": 500, "height": 800})
    page.wait_for_function(
        "before => document.getElementById('chart').getAttribute('viewBox') !== before", arg=wide
    )
    assert drawn(page) == [0, 1, 2]


def test_twenty_runs_of_a_thousand_points(opened, tmp_path):
    for k in range(20):
        values = 10.0 ** (-np.linspace(0, 3 + k / 4, 1000))
        written(
            tmp_path / "runs" / f"{k:02}",
            curve(values) | {"phi": values, "outer": values},
            label=f"run {k}",
        )
    page = opened(report(tmp_path / "runs", tmp_path / "report.html"))
    assert drawn(page) == list(range(20))
    assert all(shape(page, k).count("L") == 999 for k in range(20))
    look = (
        "all => all.map(each => each.getAttribute('stroke') +"
        " each.getAttribute('stroke-dasharray'))"
    )
    assert len(set(page.eval_on_selector_all("#chart [data-line]", look))) == 20


@pytest.mark.parametrize(
    "history",
    [
        {"step": np.array([0])},
        {"step": np.array([0]), "stationarity": np.array([1.0])},
        {"step": np.array([0, 5]), "stationarity": np.array([np.nan, np.inf])},
        {"step": np.array([0, 5]), "phi": np.array([-1.0, -2.0])},
        {"step": np.array([0, 5]), "phi": np.array([0.0, 0.0])},
        {"step": np.array([0, 5]), "phi": np.array([3.0, 3.0])},
        {"step": np.array([0, 5]), "phi": np.array([1e-320, 1e308])},
    ],
)
def test_odd_histories_still_open(opened, tmp_path, history):
    page = opened(
        report(written(tmp_path / "run", history, steps=5, seconds=0.0), tmp_path / "report.html")
    )
    for control in ("#log-x", "#log-y"):
        page.click(control)
    assert "NaN" not in page.inner_html("#chart")
    assert page.locator("#axis option").all_text_contents() == [
        "steps", "work, in gradients of all agents", "bytes sent, all links",
    ]  # fmt: skip


def test_data_cannot_leave_its_element(path):
    page = path.read_text()
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[
        1
    ]
    assert json.loads(data)["runs"][2]["label"] == NASTY
    assert page.count("<script") == 2
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page)
    assert "eval(" not in page


def test_a_large_network_is_described_and_not_drawn(tmp_path):
    path = report(
        written(tmp_path / "run", curve(FALLING), network=decibo.ring(6000)),
        tmp_path / "report.html",
    )
    page = path.read_text()
    assert "Too many agents or links to draw." in page
    assert "6,000" in page


def test_a_run_that_stays_on_a_plateau_is_not_the_best(tmp_path):
    left = curve(FALLING[::-1] * 50) | {"phi": np.linspace(0.7, 0.1, 91)}
    stayed = curve(np.full(91, FALLING[-1] * 50)) | {"phi": np.full(91, 0.7)}
    assert stayed["stationarity"][-1] < left["stationarity"][-1]
    page = tmp_path / "page.html"
    report([written(tmp_path / "left", left), written(tmp_path / "stayed", stayed)], page)
    card = re.search(r"Lowest at the end: (\w+).*?([\d.]+)<", page.read_text(), re.DOTALL)
    assert card.groups() == ("phi", "0.1")


def test_the_same_folders_give_the_same_page(tmp_path):
    written(tmp_path / "run", curve(FALLING))
    one, two = (
        report(tmp_path / "run", tmp_path / name).read_bytes() for name in ("a.html", "b.html")
    )
    assert one == two


def test_a_folder_instead_of_a_file_is_rejected(tmp_path):
    written(tmp_path / "run", curve([1.0, 0.5]))
    with pytest.raises(InputError, match=r"is a folder\. Try .*report\.html"):
        report(tmp_path / "run", tmp_path)


def test_a_page_without_jinja_is_an_import_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match="Jinja2"):
        report(written(tmp_path / "run", curve([1.0, 0.5])), tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_the_policy_names_the_checksum_of_the_script(path):
    page = path.read_text()
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page


class Tags(HTMLParser):
    """The elements of a page and the names of their attributes."""

    def __init__(self, page):
        super().__init__()
        self.names = Counter()
        self.attributes = set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.names[tag] += 1
        self.attributes |= {name for name, _ in attrs}


def hostile(value):
    """The same record with every text in it made hostile, except what decides how the page is
    made."""
    if isinstance(value, dict):
        return {
            f"{name}" if name in KEYS else f"{name}{NASTY}": hostile(item)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [hostile(item) for item in value]
    return f"{value}{NASTY}" if isinstance(value, str) else value


SCHEMAS = (folder.RunFile, folder.ProblemRecord, folder.MethodRecord, folder.NetworkRecord)
KEYS = {name for schema in SCHEMAS for name in schema.__annotations__}
KEYS |= {"gradients", "work", *Cost.__annotations__}


def test_every_text_of_a_run_is_escaped(tmp_path):
    plain = written(tmp_path / "plain", curve(FALLING) | {"own": FALLING}, network=LABELLED)
    nasty = written(tmp_path / "nasty", curve(FALLING) | {f"own{NASTY}": FALLING}, network=LABELLED)
    record = json.loads((nasty / "run.json").read_text())
    kind, version, _ = (record.pop(name) for name in ("kind", "format", "checksum"))
    exact = {name: record[name] for name in ("files", "measures")}
    (nasty / "run.json").write_bytes(encode_record(kind, version, hostile(record) | exact))
    before = Tags(report(plain, tmp_path / "plain.html").read_text())
    after = Tags(report(nasty, tmp_path / "nasty.html").read_text())
    assert "agent 0 (alice" in (tmp_path / "nasty.html").read_text()
    assert after.names == before.names
    assert after.attributes == before.attributes


def test_seeds_of_one_setting_are_a_line_in_a_band(opened, tmp_path):
    for seed, factor in enumerate((1.0, 2.0, 8.0)):
        run = made_up(curve(factor * FALLING))
        write_run(
            tmp_path / "a" / str(seed),
            run,
            PROBLEM,
            RING,
            METHOD,
            label="mine",
            seed=seed,
            setting="s",
        )
    page = opened(report([tmp_path / "a"], tmp_path / "page.html"))
    assert drawn(page) == [0]
    assert page.locator("#chart path.band").count() == 1
    corners = re.findall(r"[\d.]+,([\d.]+)", page.get_attribute("#chart path.band", "d"))
    upper, lower = float(corners[0]), float(corners[-1])
    middle = float(re.match(r"M[\d.]+,([\d.]+)", shape(page))[1])
    assert upper < middle < lower  # pixels count downwards
    page.focus("#chart")
    page.keyboard.press("ArrowRight")
    assert "median of 3 seeds; half are from 1.5 to 5" in page.locator("#tip").inner_text()
