"""Pages of the console in a real Chromium: what a token is offered, what runs, imports, pictures.

As in :mod:`test_console_browser` every test also asserts that nothing was asked of another origin,
that no script failed, and that the page's policy had nothing to report.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.api.database import catalog_of
from chronicle.server.access.tokens import create_token
from chronicle.tests.patience import wait_until

from .console_page import Console

PAIRS = """SELECT l.v FROM steps MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES A.v AS v
    PATTERN (A B) WITHIN INTERVAL '20' SECOND DEFINE A AS v >= 46) AS l
  RECENT JOIN steps MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES A.v AS v
    PATTERN (A B) WITHIN INTERVAL '20' SECOND DEFINE A AS v < 4) AS a
  ON a.k = l.k WITHIN INTERVAL '60' SECOND"""
PAGES = ("Query", "Streams", "Live", "Health", "Import", "Admin", "Help")


@pytest.mark.parametrize(
    ("scopes", "pages", "sections"),
    [
        (["read"], {"Query", "Streams", "Live", "Health", "Help"}, None),
        (["ingest"], {"Streams", "Health", "Import", "Help"}, None),
        (["metrics"], {"Health", "Help"}, None),
        (["operate"], {"Live", "Health", "Admin", "Help"}, {"Jobs", "Backups"}),
        (["read", "write", "operate"], set(PAGES), {"Jobs", "Backups", "Storage"}),
        (["admin"], set(PAGES), {"Tokens", "Jobs", "Backups", "Indexes", "Storage", "Settings"}),
    ],
)
def test_a_token_is_offered_the_pages_of_its_scopes(
    steps: Any,
    open_console: Callable[..., Console],
    scopes: list[str],
    pages: set[str],
    sections: set[str] | None,
) -> None:
    """Each of them works: nothing that is shown is refused."""
    _, secret = create_token(steps.path, "someone", scopes, ["*"])
    console = open_console()
    console.sign_in(secret)
    page = console.page
    links = page.get_by_role("navigation", name="Pages").get_by_role("link")
    links.first.wait_for()
    assert set(links.all_inner_texts()) == pages
    for name in sorted(pages):
        links.filter(has_text=name).click()
        page.wait_for_timeout(300)
        assert page.get_by_role("alert").count() == 0, name
    if sections is None:
        console.open("#/admin")
        page.get_by_text("It takes the scope admin or operate").wait_for()
        return
    links.filter(has_text="Admin").click()
    page.get_by_role("region", name="Jobs", exact=True).wait_for()
    found = (
        page.get_by_role("main")
        .locator("> section")
        .evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
    )
    assert set(found) == sections


def test_a_busy_server_is_asked_again(steps: Any, open_console: Callable[..., Console]) -> None:
    """503 says to ask again: a check, a page and a plan do so, and nobody is told."""
    console = open_console()
    console.expected = ["503"]
    console.open()
    page = console.page
    refused: list[str] = []

    def busy(route: Any) -> None:
        if refused.count(route.request.url) < 2:
            refused.append(route.request.url)
            problem = {"code": "overloaded", "title": "", "status": 503, "detail": "try again"}
            route.fulfill(status=503, json=problem, headers={"Retry-After": "1"})
        else:
            route.continue_()

    for place in ("check", "explain", "matches", "streams/steps"):
        page.route(f"**/v1/{place}", busy)
    console.write("SELECT vv FROM steps")
    page.locator(".cm-lintRange-error").wait_for()
    console.run("SELECT v FROM steps MATCH_RECOGNIZE (ORDER BY t MEASURES A.v AS v PATTERN (A))")
    page.get_by_role("tab", name="Plan").click()
    page.get_by_role("region", name="MatchRecognize").wait_for()
    page.get_by_role("tab", name="Matches").click()
    page.get_by_text(re.compile(r"^[\d,]+ matches")).wait_for()
    console.open("#/streams/steps")
    page.get_by_role("heading", name="Schema").wait_for()
    assert page.get_by_role("alert").count() == 0
    assert len(refused) == 8


def test_what_live_queries_put_out_is_told(
    steps: Any, open_console: Callable[..., Console]
) -> None:
    steps.create_live("low", "SELECT k, v FROM steps WHERE v < 2", idle="never")
    steps.run_live()
    console = open_console()
    console.open("#/live")
    page = console.page
    alerts = page.get_by_role("region", name="Alerts", exact=True)
    alerts.get_by_text(re.compile("k key . · v [01]")).first.wait_for()
    assert alerts.get_by_role("row").count() == 1 + 50  # the newest of those that were there
    steps.stream("steps").append(
        [{"t": np.datetime64(3000 + i, "s"), "k": "x", "v": i} for i in range(9)]
    )
    steps.run_live()
    alerts.get_by_text("k x · v 1").wait_for()
    first = alerts.get_by_role("row").nth(1).inner_text()
    assert "1970-01-01 00:50:01" in first
    assert "result" in first
    alerts.get_by_role("button", name="Pause").click()
    live = page.get_by_role("region", name="Live queries")
    live.get_by_role("button", name="Pause").click()
    live.get_by_text("paused").wait_for()


def test_running_queries_say_how_far_they_are(
    steps: Any, open_console: Callable[..., Console]
) -> None:
    console = open_console()
    running = {
        "id": "q1", "kind": "query", "text": "SELECT 1", "token": None, "running_ms": 5000.0,
        "events_read": 250_000, "events_expected": 1_000_000,
    }  # fmt: skip
    small = {**running, "id": "q2", "events_read": None, "events_expected": None}
    console.page.route(
        "**/v1/queries", lambda route: route.fulfill(json={"queries": [running, small]})
    )
    console.open("#/live")
    section = console.page.get_by_role("region", name="Running queries")
    section.get_by_text("250k of 1M").wait_for()
    bar = section.get_by_role("progressbar")
    assert (bar.get_attribute("value"), bar.get_attribute("max")) == ("250000", "1000000")
    assert section.get_by_role("row").count() == 3


def test_pairs_are_joined_by_arrows(steps: Any, open_console: Callable[..., Console]) -> None:
    console = open_console()
    console.open()
    console.run(PAIRS)
    page = console.page
    page.get_by_role("tab", name="Matches").click()
    said = page.get_by_text(re.compile(r"^[\d,]+ pairs$"))
    said.wait_for()
    pairs = int(said.inner_text().split()[0].replace(",", ""))
    assert pairs > 10
    page.get_by_role("img", name=re.compile("Timeline")).wait_for()
    table = page.get_by_role("table", name="Pairs")
    assert table.get_by_role("row").count() == 1 + pairs
    table.get_by_role("button").first.click()
    assert table.get_by_role("row").nth(1).get_attribute("aria-selected") == "true"
    console.expected = ["400"]
    console.run(PAIRS.replace("RECENT JOIN", "RECENT SEMI JOIN"))
    page.get_by_role("tabpanel").get_by_text("no pairs to draw").wait_for()


def test_partitions_have_lanes(steps: Any, open_console: Callable[..., Console]) -> None:
    console = open_console()
    lanes = [{"key": f"key {i}", "found": [[i * 10, i * 10 + 5]]} for i in range(12)]
    regions = {"found": [[0, 200, "read", 2000]], "unit": "s", "cut": False, "lanes": lanes}
    step = {"operator": "Replay", "regions": {**regions, "partitions": 842}}
    plan = {"analyzed": False, "planning_ms": 1.0, "plan": step, "text": ""}
    console.page.route("**/v1/explain", lambda route: route.fulfill(json=plan))
    console.open()
    console.run("SELECT v FROM steps LIMIT 1")
    page = console.page
    page.get_by_role("tab", name="Plan").click()
    page.get_by_role("img", name=re.compile("Replayed partitions: key 0, .*key 7$")).wait_for()
    page.get_by_text("8 of 842 partitions").wait_for()
    page.get_by_role("button", name="4 more").click()
    page.get_by_role("img", name=re.compile("Replayed partitions: .*key 11$")).wait_for()


def test_views_stand_beside_streams_and_are_completed(
    steps: Any, open_console: Callable[..., Console]
) -> None:
    steps.sql("CREATE VIEW slow AS SELECT t, v AS pace FROM steps WHERE v < 9")
    console = open_console()
    console.open()
    page = console.page
    tree = page.get_by_role("tree", name="Streams")
    view = tree.get_by_role("treeitem", name="slow view")
    view.get_by_role("button", name="Open").click()
    assert "SELECT t, v AS pace FROM steps" in str(
        view.get_by_role("button", name="slow").get_attribute("title")
    )
    tree.get_by_role("treeitem", name="pace").wait_for()
    page.get_by_role("textbox", name="SQL editor").click()
    page.keyboard.press("Control+a")
    page.keyboard.type("SELECT * FROM slo")
    options = page.locator(".cm-tooltip-autocomplete li")
    options.filter(has_text="slow").filter(has_text="view").wait_for()
    page.keyboard.press("Escape")
    console.write("SELECT  FROM slow")
    for _ in range(len(" FROM slow")):
        page.keyboard.press("ArrowLeft")
    page.keyboard.type("pac")
    options.filter(has_text="pace").filter(has_text="slow").wait_for()
    page.keyboard.press("Escape")
    console.run("CREATE VIEW slower AS SELECT * FROM slow WHERE pace < 2")
    tree.get_by_role("treeitem", name="slower view").wait_for()
    page.get_by_label("Filter streams").fill("pace")
    assert tree.get_by_role("treeitem", name=re.compile(" view$")).count() == 2
    assert tree.get_by_role("treeitem", name="steps").count() == 0


def test_the_page_of_streams_lists_the_views(
    steps: Any, open_console: Callable[..., Console]
) -> None:
    """An administrator drops one, unless another reads it; a click asks it."""
    steps.sql("CREATE VIEW slow AS SELECT t, v AS pace FROM steps WHERE v < 9")
    steps.sql("CREATE VIEW slower AS SELECT * FROM slow WHERE pace < 2")
    console = open_console()
    console.expected = ["409"]
    console.open("#/streams")
    page = console.page
    views = page.get_by_role("region", name="Views", exact=True)
    row = views.get_by_role("row").filter(has=page.get_by_role("cell", name="slow", exact=True))
    row.first.get_by_role("link", name="steps").wait_for()
    row.first.get_by_text("t, pace").wait_for()
    for _ in range(2):
        views.get_by_role("button", name=re.compile("^Drop the view slow($|:)")).click()
    views.get_by_role("alert").get_by_text("read by the views slower").wait_for()
    for _ in range(2):
        views.get_by_role("button", name=re.compile("^Drop the view slower")).click()
    views.get_by_role("cell", name="slower", exact=True).wait_for(state="detached")
    assert list(catalog_of(steps).views()) == ["slow"]
    views.get_by_role("button", name="Query slow").click()
    page.get_by_role("button", name="Run").click()
    assert console.cells()[1] == "0"


def test_health_names_the_port_of_flight_sql(
    steps: Any, open_console: Callable[..., Console]
) -> None:
    console = open_console()
    console.open("#/health")
    console.shows("Everything works.")
    console.page.get_by_text("All metrics").click()
    console.shows("off; --flight-port opens it")


def test_the_console_works_without_a_network(
    steps: Any, open_console: Callable[..., Console]
) -> None:
    """Names lead nowhere in this browser; still every page is whole, with its pictures and help."""
    console = open_console()
    asked: set[str] = set()
    failed: list[str] = []
    console.page.on("request", lambda request: asked.add(request.url.partition("?")[0]))
    console.page.on(
        "requestfailed", lambda request: failed.append(f"{request.url} {request.failure}")
    )
    console.open()
    page = console.page
    console.run("SELECT * FROM steps MATCH_RECOGNIZE (ORDER BY t MEASURES A.v AS v PATTERN (A))")
    console.cells()
    for tab in ("Chart", "Matches", "Plan"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(300)
    for name in PAGES:
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
        page.get_by_role("main").wait_for()
        page.wait_for_timeout(300)
    console.open("#/help/sql")
    page.get_by_role("heading", name="SQL").first.wait_for()
    places = {url.removeprefix(console.address) for url in asked if not url.startswith("blob:")}
    assert all(place.startswith(("/console/", "/v1/")) for place in places), places
    assert {"/console/editor.js", "/console/arrow-worker.js", "/console/docs/sql.md"} <= places
    assert [one for one in failed if "ERR_ABORTED" not in one] == []  # what a page left behind


def test_a_number_that_is_being_typed_stays(
    steps: Any, open_console: Callable[..., Console]
) -> None:
    """Whatever the page draws anew meanwhile; a limit that went back cut the next answer."""
    console = open_console()
    console.expected = ["404"]  # what is cancelled may not have begun
    console.open()
    page = console.page
    console.run(
        "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range = 7"
    )
    page.get_by_role("button", name="Cancel").wait_for()
    limit = page.get_by_label("Limit")
    limit.fill("200000")  # nothing tells the page that it is whole
    page.get_by_role("button", name="Cancel").dispatch_event("click")
    page.get_by_role("button", name="Run").wait_for()
    assert limit.input_value() == "200000"
    limit.fill("")
    page.get_by_label("Timeout").fill("50")
    assert limit.input_value() == "200000"  # no number: as it was
    console.run("SELECT i FROM range(150000) AS r(i)")
    console.shows("150,000 rows")


@pytest.mark.parametrize(
    "place", ["#/live", "#/admin", "#/import", "#/health", "#/query", "#/streams/steps", "#/help"]
)
def test_no_page_is_wider_than_a_phone(
    steps: Any, open_console: Callable[..., Console], place: str
) -> None:
    console = open_console(width=390)
    console.open(place)
    console.page.get_by_role("main").wait_for()
    console.page.wait_for_timeout(500)
    page = "document.documentElement"
    assert console.page.evaluate(f"{page}.scrollWidth - {page}.clientWidth") <= 0
    small = console.page.evaluate(
        "[...document.querySelectorAll('button, select, input')]"
        ".filter(e => e.offsetParent && e.getBoundingClientRect().right > innerWidth + 1"
        " && !e.closest('.scroll, .top, .list'))"
        ".map(e => e.outerHTML.slice(0, 80))"
    )
    assert json.loads(json.dumps(small)) == []


def test_lanes_are_those_of_the_plan(database: Any, open_console: Callable[..., Console]) -> None:
    """From the store to the picture: a pattern whose partitions indexes tell."""
    schema = pa.schema([("t", pa.timestamp("us")), ("k", pa.string()), ("v", pa.int64())])
    stream = database.create_stream("rare", schema, time="t")
    n = np.arange(60_000)
    values = np.where(n % 9973 == 5, 1, 0)
    times = pa.array(n * 1_000_000, pa.timestamp("us"))
    stream.append(pa.table([times, [f"k{i % 300}" for i in n], values], schema))
    stream.seal()
    stream.create_index("v")
    console = open_console()
    console.open()
    console.run(
        "SELECT /*+ strategy(index) */ * FROM rare MATCH_RECOGNIZE (PARTITION BY k ORDER BY t "
        "MEASURES A.v AS v PATTERN (A B) WITHIN INTERVAL '1' HOUR DEFINE A AS v = 1)"
    )
    page = console.page
    page.get_by_role("tab", name="Plan").click()
    page.get_by_role("img", name=re.compile("Replayed partitions: .*k")).wait_for()


def test_what_is_corrected_is_what_is_stored(
    tmp_path: Path, database: Any, open_console: Callable[..., Console]
) -> None:
    """Another name, another type, a column left out: looked at again, rehearsed, stored."""
    path = tmp_path / "my pumps.csv.gz"
    lines = [f"2026-03-01 08:{i:02}:00;p{i % 3};{i};{i}.5" for i in range(50)]
    path.write_bytes(gzip.compress("\n".join(["when;pump;turns;noise", *lines, ""]).encode()))
    console = open_console()
    console.open("#/import")
    page = console.page
    page.get_by_label("File", exact=True).set_input_files(path)
    page.get_by_text("csv · gzip").wait_for()
    assert page.get_by_label("Name of the stream").input_value() == "my_pumps"
    columns = page.get_by_role("table", name="Columns")
    columns.get_by_role("row").nth(1).get_by_text("time", exact=True).wait_for()
    page.get_by_label("Name of turns").fill("rounds")
    page.get_by_label("Type of turns").select_option("double")
    columns.get_by_text("0 · 1 · 2").wait_for()
    page.get_by_label("Keep noise").uncheck()
    page.get_by_role("button", name="Check all").click()
    page.get_by_role("status").get_by_text("50 rows can be stored").wait_for()
    assert database.streams() == []
    page.get_by_role("button", name="Import", exact=True).click()
    page.get_by_role("status").get_by_text("50 events stored").wait_for()
    found = database.sql('SELECT * FROM my_pumps ORDER BY "when"').arrow()
    assert found.schema.names == ["when", "pump", "rounds"]
    assert str(found.schema.field("rounds").type) == "double"
    assert found.column("rounds").to_pylist() == [float(i) for i in range(50)]

    more = tmp_path / "my_pumps.ndjson"
    rows = [{"when": "2026-03-02T08:00:00", "pump": "p1", "turns": 7}, {"when": "never"}]
    more.write_text("".join(json.dumps(row) + "\n" for row in rows))
    page.get_by_label("File", exact=True).set_input_files(more)
    page.get_by_text("exists, 50 events").wait_for()
    page.get_by_label("Name of turns").fill("rounds")
    page.get_by_text("1 of the first 2 rows cannot be read as events").wait_for()
    page.get_by_label("skip bad rows").check()
    page.get_by_role("button", name="Import", exact=True).click()
    page.get_by_role("status").get_by_text("1 bad rows were skipped").wait_for()
    assert database.stream("my_pumps").count == 51


def test_an_empty_tab_offers_queries_for_what_is_stored(
    steps: Any, open_console: Callable[..., Console]
) -> None:
    console = open_console()
    console.open()
    page = console.page
    page.get_by_role("button", name="v over time, by k").click()
    page.get_by_role("img", name="Chart of mean over window_start").wait_for()
    page.get_by_role("button", name="New query").click()
    page.get_by_role("button", name=re.compile("^When v was above .*, by k")).click()
    page.get_by_text(re.compile(r"^1 of \d+$")).wait_for()
    page.get_by_role("region", name="Events of the match").get_by_role("table").wait_for()
    assert page.get_by_role("alert").count() == 0


def test_an_empty_store_says_how_events_come_in(
    database: Any, open_console: Callable[..., Console]
) -> None:
    console = open_console()
    for place in ("", "#/streams"):
        console.open(place)
        console.shows("This store has no events yet")
        console.page.get_by_role("link", name="Import a file").wait_for()
        console.shows(re.compile(r"chronicle ingest .* --url http://127\.0\.0\.1:\d+/"))


def test_the_address_selects_also_where_its_page_is_shown(
    steps: Any, open_console: Callable[..., Console]
) -> None:
    console = open_console()
    console.open("#/live")
    page = console.page
    page.get_by_role("button", name="Follow").wait_for()
    page.evaluate("location.hash = '#/live/steps'")
    page.get_by_role("button", name="Pause").wait_for()
    tail = page.get_by_role("region", name="Tail")
    assert tail.get_by_role("combobox").input_value() == "steps"
    page.evaluate("location.hash = '#/query'")
    editor = page.get_by_role("textbox", name="SQL editor")
    editor.wait_for()
    page.evaluate("location.hash = '#q=SELECT+7+AS+linked'")
    editor.get_by_text("linked").wait_for()
    page.evaluate("location.hash = '#/streams'")
    page.get_by_role("link", name="steps").wait_for()
    page.evaluate("location.hash = '#/streams/steps'")
    page.get_by_role("heading", name="Schema").wait_for()


@pytest.mark.parametrize(
    ("place", "asked", "early"),
    [
        ("#/live", "**/v1/live/low/rows*", "No results yet"),
        ("#/streams/steps", "**/profile*", "0 events"),
        ("#/streams", "**/v1/streams", "0 streams"),
        ("#/health", "**/v1/status", "Everything works"),
        ("#/admin", "**/v1/tokens", "None:"),
        ("", "**/v1/streams", "No streams yet"),
    ],
)
def test_what_is_loading_says_so(
    steps: Any, open_console: Callable[..., Console], place: str, asked: str, early: str
) -> None:
    """And not that there is nothing."""
    steps.create_live("low", "SELECT k, v FROM steps WHERE v < 2", idle="never")
    steps.run_live()
    console = open_console()
    page = console.page
    held: list[Any] = []
    page.route(asked, lambda route: held.append(route), times=1)
    with page.expect_request(asked):
        console.open(place)
    loading = page.get_by_role("status").filter(has_text="Loading…")
    loading.first.wait_for()
    assert page.get_by_role("main").get_by_text(re.compile(rf"\b{early}")).count() == 0
    held[0].continue_()
    wait_until(lambda: loading.count() == 0)
