"""The console in a real Chromium: journeys, a million rows, hostile text, broken answers, rights.

Every test also asserts that nothing was asked of another origin, that no script failed, and that
the page's policy had nothing to report.  Without a browser they are skipped, unless
``CHRONICLE_BROWSER=required``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from chronicle.server.access.tokens import create_token, list_tokens
from chronicle.tests.patience import wait_until

from .console_page import AXE, Console

KEPT = """text => new Promise(done => {
    const asked = indexedDB.open("chronicle", 1);
    asked.onsuccess = () => {
        const found = asked.result.transaction("kept").objectStore("kept").getAll();
        found.onsuccess = () => done(JSON.stringify(found.result).includes(text));
    };
})"""
"""Whether the page has stored a text."""
HOSTILE = [
    "<img src=x onerror=window.hacked=1>",
    "\u202eevil\u202c",
    "a\x00b",
    "</script><script>window.hacked=1</script>",
    "javascript:window.hacked=1",
    "x" * 1_000_000,
]
MATCH = """SELECT * FROM steps MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY t MEASURES A.v AS v PATTERN (A B+)
  DEFINE A AS v = 10, B AS v > PREV(v)
) AS m"""


def test_a_journey(steps: Any, open_console: Callable[..., Console]) -> None:
    """From the stream to rows, a chart, matches, the plan and a file."""
    console = open_console()
    console.open()
    page = console.page
    page.get_by_role("tree", name="Streams").get_by_role("treeitem", name="steps").wait_for()
    console.run("SELECT t, k, v FROM steps WHERE v >= $least ORDER BY t")
    page.get_by_label("$least").fill("49")
    page.get_by_role("button", name="Run").click()
    assert console.cells()[:3] == ["1970-01-01 00:00:49", "key 1", "49"]
    page.get_by_role("tab", name="Chart").click()
    page.get_by_role("img", name=re.compile("Chart of v")).wait_for()
    assert page.get_by_role("group", name="Lines by").get_by_label("k").is_checked()
    with page.expect_download() as download:
        page.get_by_label("Export").select_option("csv")
    assert Path(download.value.path()).read_text().count("\n") == 41
    console.run(MATCH)
    page.get_by_role("tab", name="Matches").click()
    page.get_by_text(re.compile(r"^\d+ matches$")).wait_for()
    events = page.get_by_role("region", name="Events of the match")
    events.get_by_role("table").wait_for()
    first = events.get_by_role("heading").inner_text()
    page.get_by_role("button", name="Next").click()
    events.get_by_role("heading").filter(has_not_text=re.compile(f"^{first}$")).wait_for()
    page.get_by_role("tab", name="Plan").click()
    page.get_by_text(re.compile(r"^Read .* of 2 k events|^Read all 2 k events")).wait_for()
    page.get_by_role("region", name="MatchRecognize").wait_for()
    page.get_by_role("img", name=re.compile("History map")).wait_for()
    page.get_by_role("link", name="Streams", exact=True).click()
    page.get_by_role("link", name="steps").click()
    page.get_by_role("img", name=re.compile("Events over time, 2,000 in all")).wait_for()


def test_tabs_are_kept_and_links_run_nothing(
    steps: Any, open_console: Callable[..., Console]
) -> None:
    console = open_console()
    console.open()
    console.write("SELECT 41 + 1 AS answer")
    console.page.wait_for_function(KEPT, arg="41 + 1")
    console.page.reload()
    console.page.get_by_role("textbox", name="SQL editor").get_by_text("41").wait_for()
    console.page.keyboard.press("Control+Enter")
    assert console.cells() == ["42"]
    console.page.goto("about:blank")
    console.open("#q=SELECT+7+AS+linked")
    console.page.get_by_role("textbox", name="SQL editor").get_by_text("linked").wait_for()
    assert console.page.get_by_role("grid", name="Results").count() == 0


def test_what_is_typed_fast_stands_as_it_was_typed(
    steps: Any, open_console: Callable[..., Console]
) -> None:
    """Several keys within a frame; and each tab takes back what was typed in it."""
    console = open_console()
    console.open()
    page = console.page
    editor = page.get_by_role("textbox", name="SQL editor")
    text = "-- a long remark, typed by somebody who is in a hurry: " + "quick brown foxes " * 10
    editor.click()
    page.keyboard.press("Control+a")
    page.keyboard.type(text)
    wait_until(lambda: editor.inner_text() == text)
    page.wait_for_timeout(300)
    assert editor.inner_text() == text
    page.get_by_role("button", name="New query").click()
    editor.get_by_text("SELECT …").wait_for()
    page.keyboard.type("SELECT 7")
    page.keyboard.press("Escape")
    for _ in range(5):
        page.keyboard.press("Control+z")
    page.wait_for_timeout(300)
    assert "remark" not in editor.inner_text()
    page.get_by_role("button", name="Query 1", exact=True).click()
    editor.get_by_text("in a hurry").wait_for()
    assert editor.inner_text() == text


def test_errors_stand_at_their_place(steps: Any, open_console: Callable[..., Console]) -> None:
    console = open_console()
    console.expected = ["400"]
    console.open()
    console.write("SELECT 1;\nSELECT vv FROM steps")
    marked = console.page.locator(".cm-lintRange-error")
    marked.wait_for()
    assert marked.inner_text() == "vv"
    console.page.get_by_role("button", name="Run").click()
    alert = console.page.get_by_role("alert")
    for view in ("Table", "Chart", "Matches", "Plan"):
        console.page.get_by_role("tab", name=view).click()
        alert.wait_for()
        assert alert.inner_text().startswith("Line 2, column 8\n"), view
        assert "did you mean" in alert.inner_text()
        assert alert.inner_text().endswith("SELECT vv FROM steps\n       ^^"), view
    console.page.get_by_role("tab", name="Table").click()


def test_a_million_rows_and_every_digit(steps: Any, open_console: Callable[..., Console]) -> None:
    console = open_console()
    console.open()
    console.page.get_by_label("Limit").fill("2000000")
    console.run(
        "SELECT i, CAST(9007199254740993 + i AS bigint) AS big, "
        "CAST(i AS decimal(38, 10)) / 8 AS part FROM range(1000000) AS r(i)"
    )
    console.shows("1,000,000 rows")
    assert console.cells()[1] == "9007199254740993"
    grid = console.page.get_by_role("grid", name="Results")
    assert grid.get_attribute("aria-rowcount") == "1000001"
    grid.focus()
    console.page.keyboard.press("Control+End")
    last = grid.get_by_role("gridcell", name="9007199255740992")
    last.wait_for()
    assert grid.get_by_role("row").count() < 80
    assert last.bounding_box()["y"] < 900
    grid.evaluate("grid => { grid.scrollTop = grid.scrollHeight }")
    console.page.wait_for_timeout(300)
    assert last.is_visible()


def test_hostile_text_stays_text(database: Any, open_console: Callable[..., Console]) -> None:
    schema = pa.schema([("t", pa.timestamp("us")), (HOSTILE[0], pa.string())])
    times = pa.array(range(len(HOSTILE)), pa.timestamp("us"))
    stream = database.create_stream("<b>bold</b>", schema, time="t")
    stream.append(pa.table([times, HOSTILE], schema))
    console = open_console()
    console.open()
    console.page.get_by_role("treeitem", name="<b>bold</b>").wait_for()
    console.run('SELECT * FROM "<b>bold</b>" ORDER BY t')
    found = console.cells()
    assert HOSTILE[0] in found
    assert HOSTILE[3] in found
    assert max(map(len, found)) < 1000
    console.open("#/streams/%3Cb%3Ebold%3C%2Fb%3E")
    console.page.get_by_role("cell", name=HOSTILE[0]).wait_for()


def test_a_query_is_cancelled(steps: Any, open_console: Callable[..., Console]) -> None:
    console = open_console()
    console.expected = ["499", "404"]  # 404: cancelled before the server had begun
    console.open()
    console.run(
        "SELECT count(*) FROM steps AS a, steps AS b, steps AS c WHERE a.v + b.v + c.v = -1"
    )
    console.page.get_by_role("button", name="Cancel").click()
    console.page.get_by_role("alert").get_by_text("Cancelled").wait_for()
    console.page.get_by_role("button", name="Run").wait_for()


def test_a_broken_answer_is_no_answer(steps: Any, open_console: Callable[..., Console]) -> None:
    """An Arrow stream without its end marker, and one that is cut in the middle of a batch."""
    console = open_console()
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([pa.array([1, 2, 3])], ["n"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    whole = sink.getvalue().to_pybytes()
    cuts = iter([whole[:-8], whole[: len(whole) - 30]])
    console.open()
    console.page.route(
        "**/v1/query",
        lambda route: route.fulfill(
            body=next(cuts), content_type="application/vnd.apache.arrow.stream"
        ),
    )
    for _ in range(2):
        console.run("SELECT n FROM somewhere")
        alert = console.page.get_by_role("alert")
        alert.get_by_text("The answer is incomplete").first.wait_for()


def test_a_token_is_offered_what_it_may_do(
    steps: Any, open_console: Callable[..., Console]
) -> None:
    _, reader = create_token(steps.path, "reader", ["read"], ["*"])
    console = open_console()
    console.expected = ["401"]
    console.open()
    page = console.page
    page.get_by_label("Token").fill("chr_wrong")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("alert").wait_for()
    page.get_by_label("Token").fill(reader)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("tree", name="Streams").wait_for()
    console.run("SELECT count(*) AS n FROM steps")
    assert console.cells() == ["2000"]
    console.open("#/streams/steps")
    page.get_by_role("heading", name="Schema").wait_for()
    assert page.get_by_role("button", name=re.compile("Drop|index")).count() == 0
    assert reader not in page.evaluate("JSON.stringify(localStorage) + document.cookie")


def test_a_file_is_imported_whole_or_not(
    tmp_path: Path, steps: Any, open_console: Callable[..., Console]
) -> None:
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    lines = [f"2024-01-01T00:00:{i:02},{i}.5,a" for i in range(60)]
    good.write_text("\n".join(["when,level,who", *lines]) + "\n")
    bad.write_text("\n".join(["when,level,who", *lines * 10, "2024-01-01T01:00:00,much,a"]) + "\n")
    console = open_console()
    console.expected = ["400"]
    console.open("#/import")
    page = console.page
    for path, wanted in ((bad, "alert"), (good, "status")):
        page.get_by_label("File", exact=True).set_input_files(path)
        page.get_by_label("Type of level").select_option("double")
        page.get_by_role("button", name="Import").click()
        page.get_by_role(wanted).get_by_text(
            "Nothing was stored" if wanted == "alert" else "60 events stored"
        ).wait_for()
    assert steps.streams() == ["good", "steps"]


def test_a_file_with_local_times_in_two_columns_is_imported(
    tmp_path: Path, steps: Any, open_console: Callable[..., Console]
) -> None:
    path = tmp_path / "local.csv"
    path.write_text("day,hour,level\n2024-10-27,01:30:00,1\n2024-10-27,02:30:00,2\n")
    console = open_console()
    console.open("#/import")
    page = console.page
    page.get_by_label("File", exact=True).set_input_files(path)
    page.get_by_label("Time", exact=True).select_option("day")
    page.get_by_label("Time of day").select_option("hour")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    bad = page.get_by_text("1 of the first 2 rows cannot be read as events")
    bad.wait_for()  # shown twice by its clocks
    page.get_by_label("A time shown twice").select_option("later")
    bad.wait_for(state="hidden")
    page.get_by_text("2024-10-26 23:30:00").wait_for()
    page.get_by_role("button", name="Import").click()
    page.get_by_text("2 events stored").wait_for()
    times = steps.sql("SELECT CAST(day AS TEXT) FROM local ORDER BY 1").fetchall()
    assert [str(time)[:19] for (time,) in times] == ["2024-10-26 23:30:00", "2024-10-27 01:30:00"]


def test_a_file_that_the_server_cannot_read_at_first_is_imported(
    tmp_path: Path, steps: Any, open_console: Callable[..., Console]
) -> None:
    path = tmp_path / "station.csv"
    path.write_bytes(
        "Größen\nt;v\n2024-01-01 00:00;1.234,5\n2024-01-02 00:00;n/a\n".encode("latin-1")
    )
    console = open_console()
    console.expected = ["400"]
    console.open("#/import")
    page = console.page
    page.get_by_label("File", exact=True).set_input_files(path)
    page.get_by_role("alert").get_by_text("encoding=latin-1").wait_for()
    page.get_by_label("Encoding").fill("latin-1")
    page.get_by_text("skip=N").wait_for()
    page.get_by_label("Lines to skip").fill("1")
    page.get_by_label("Decimal").select_option(",")
    page.get_by_label("NULL is").fill("n/a")
    page.get_by_text("1234.5").wait_for()
    page.get_by_role("button", name="Import").click()
    page.get_by_text("2 events stored").wait_for()
    assert steps.sql("SELECT v FROM station ORDER BY t").fetchall() == [(1234.5,), (None,)]


def test_how_times_are_read_is_proposed(
    tmp_path: Path, steps: Any, open_console: Callable[..., Console]
) -> None:
    """A pattern is filled in, a column of times of day named; day or month first is asked."""
    german, split, open_end = (tmp_path / f"{name}.csv" for name in ("german", "split", "us"))
    german.write_text("Datum;Wert\n01.02.2024 13:00;1\n02.02.2024 14:00;2\n")
    split.write_text("Tag,Uhrzeit,Wert\n01.02.2024,13:00,1\n")
    open_end.write_text("at,level\n1/2/2024,1\n3/4/2024,2\n")
    console = open_console()
    console.open("#/import")
    page = console.page
    file, button = page.get_by_label("File", exact=True), page.get_by_role("button", name="Import")
    fields = [
        page.get_by_label(name, exact=True)
        for name in ("Time", "How times are read", "Time of day")
    ]

    def shown() -> list[str]:
        return [field.input_value() for field in fields]

    file.set_input_files(german)
    page.get_by_text("2024-02-01 13:00:00").wait_for()
    assert shown() == ["Datum", "%d.%m.%Y %H:%M", ""]
    button.click()
    page.get_by_text("2 events stored").wait_for()

    file.set_input_files(split)
    page.get_by_text("2024-02-01 13:00:00").wait_for()
    assert shown() == ["Tag", "%d.%m.%Y %H:%M", "Uhrzeit"]
    button.click()
    page.get_by_text("1 events stored").wait_for()

    file.set_input_files(open_end)
    page.get_by_text("Several patterns read the column at").wait_for()
    assert shown() == ["at", "", ""]
    assert button.is_disabled()
    page.get_by_role("button", name="%m/%d/%Y").click()
    page.get_by_text("2024-01-02 00:00:00").wait_for()
    button.click()
    page.get_by_text("2 events stored").wait_for()
    assert steps.streams() == ["german", "split", "steps", "us"]


@pytest.mark.parametrize(("dark", "width"), [(False, 1400), (True, 1400), (True, 390)])
def test_pages_are_accessible(
    steps: Any, open_console: Callable[..., Console], dark: bool, width: int
) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not there: `make console`")
    console = open_console(dark=dark, width=width)
    console.open()
    places = [
        "",
        "Table",
        "Chart",
        "Matches",
        "Plan",
        "#/streams",
        "#/streams/steps",
        "#/live",
        "#/health",
        "#/import",
        "#/admin",
        "#/help",
    ]
    console.page.get_by_text("Try one of these").wait_for()
    for place in places:
        if place == "Table":
            console.run(MATCH)
            console.cells()
        elif place.startswith("#"):
            console.open(place)
            console.page.get_by_role("main").wait_for()
        elif place:
            console.page.get_by_role("tab", name=place).click()
        console.page.wait_for_timeout(600)
        console.page.evaluate(AXE.read_text() + "; 0")
        found = console.page.evaluate(
            "axe.run().then(r => r.violations.map(v => `${v.id}: ${v.nodes.map(n => n.html)[0]}`))"
        )
        assert found == [], place


def test_matches_stand_below_what_the_stream_was_like(
    database: Any, open_console: Callable[..., Console]
) -> None:
    """Over a stream that counts: integers, not dates; a hole in it is a hole."""
    schema = pa.schema([("t", pa.int64()), ("v", pa.int64())])
    n = np.concatenate([np.arange(1000), np.arange(9000, 10_000)])
    database.create_stream("counted", schema, time="t").append(pa.table([n, n % 50], schema))
    console = open_console()
    console.open()
    page = console.page
    console.run(
        "SELECT * FROM counted MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS at "
        "PATTERN (A B+) DEFINE A AS v = 10, B AS v > PREV(v))"
    )
    page.get_by_role("tab", name="Matches").click()
    page.get_by_role("img", name="v of counted at the time of the matches").wait_for()
    timeline = page.get_by_role("img", name=re.compile("Timeline of 40 matches"))
    assert "from 10 to 9,999" in timeline.get_attribute("aria-label")
    page.get_by_label("Shown above the matches").select_option("events")
    page.get_by_role("img", name="events of counted at the time").wait_for()
    console.open("#/streams/counted")
    page.get_by_text(re.compile(r"^0 … 10,000 · 2,000 events$")).wait_for()
    assert "1970" not in page.get_by_role("main").inner_text()


def test_situations_are_drawn(steps: Any, open_console: Callable[..., Console]) -> None:
    console = open_console()
    console.open()
    console.run(
        "SELECT * FROM steps MATCH_SITUATIONS (PARTITION BY k PATTERN (LOW MEETS HIGH) "
        "WITHIN INTERVAL '5' MINUTE DEFINE LOW AS v < 20, HIGH AS v >= 20)"
    )
    console.page.get_by_role("tab", name="Matches").click()
    console.page.get_by_role("img", name=re.compile(r"Timeline of \d+ matches")).wait_for()
    legend = console.page.get_by_role("tabpanel").inner_text()
    assert "low" in legend
    assert "high" in legend
    console.page.get_by_role("button", name="Next").click()
    console.page.get_by_text(re.compile(r"^2 of \d+$")).wait_for()
    chosen = console.page.get_by_role("region", name="Situations of the match")
    assert chosen.get_by_role("row").count() == 3
    matches = console.page.get_by_role("table", name="Matches").get_by_role("row")
    assert matches.nth(2).get_attribute("aria-selected") == "true"


def test_an_administrator_makes_and_revokes_tokens(
    steps: Any, open_console: Callable[..., Console]
) -> None:
    _, secret = create_token(steps.path, "boss", ["admin"], ["*"])
    console = open_console()
    console.sign_in(secret, "#/admin")
    page = console.page
    tokens = page.get_by_role("table", name="Tokens")
    tokens.get_by_text("boss").wait_for()
    page.get_by_role("form", name="New token").get_by_label("Name").fill("gauge")
    page.get_by_role("button", name="Create token").click()
    shown = page.get_by_role("status").get_by_text(re.compile("^chr_"))
    shown.wait_for()
    made = shown.inner_text()
    page.get_by_role("button", name="Done").click()
    assert made not in page.content()
    assert [token.name for token in list_tokens(steps.path)] == ["boss", "gauge"]
    page.get_by_role("button", name="Revoke gauge").click()
    page.get_by_role("button", name="Revoke gauge: sure?").click()
    tokens.get_by_text("gauge").wait_for(state="detached")
    assert [token.name for token in list_tokens(steps.path)] == ["boss"]
    page.get_by_label("Stream", exact=True).select_option("steps")
    page.get_by_label("Attribute", exact=True).select_option("v")
    page.get_by_role("button", name="Create index").click()
    page.get_by_role("table", name="Indexes").get_by_text("v", exact=True).wait_for()
    assert [index["attribute"] for index in steps["steps"].indexes()] == ["v"]
    page.get_by_role("button", name="Drop the index on steps v").click()
    page.get_by_role("button", name="Drop the index on steps v: sure?").click()
    page.get_by_role("table", name="Indexes").wait_for(state="detached")
    page.get_by_label("Search the settings").fill("query_timeout")
    page.get_by_role("table", name="Settings").get_by_text("query_timeout").first.wait_for()
    console.open("#/query")
    console.run("SELECT count(*) AS counted FROM steps")
    assert console.cells() == ["2000"]
    console.open("#/live")
    ended = page.get_by_role("region", name="Ended queries", exact=True)
    ended.get_by_text("counted").first.wait_for()


def test_everything_goes_by_keyboard(steps: Any, open_console: Callable[..., Console]) -> None:
    """From the address bar to a match and back, without a mouse: Tab, Enter, arrows, letters."""
    console = open_console()
    console.open()
    page = console.page
    page.get_by_role("treeitem", name="steps").wait_for()
    keys = page.keyboard

    def tab_to(role: str, name: str, back: bool = False) -> None:
        for _ in range(60):
            here = page.evaluate(
                "() => [document.activeElement.shadowRoot?.activeElement ?? "
                "document.activeElement].map(e => [e.getAttribute('role') ?? "
                "e.tagName.toLowerCase(), e.getAttribute('aria-label') ?? e.textContent])[0]"
            )
            if here[0] == role and name in here[1]:
                return
            if here[0] == "textbox":
                keys.press("Escape")  # Tab indents in the editor, until one leaves it
            keys.press("Shift+Tab" if back else "Tab")
        raise AssertionError(f"Tab does not reach the {role} {name!r}")

    tab_to("textbox", "SQL editor")
    keys.press("Control+a")
    keys.insert_text(MATCH)
    keys.press("Control+Enter")
    assert console.cells()
    keys.press("Escape")
    keys.press("Tab")
    tab_to("tab", "Table")
    keys.press("ArrowRight")
    keys.press("ArrowRight")
    page.get_by_text(re.compile(r"^\d+ matches$")).wait_for()
    tab_to("button", "Next")
    keys.press("n")
    page.get_by_role("region", name="Events of the match").get_by_role("table").wait_for()
    keys.press("n")
    page.get_by_text(re.compile(r"^3 of \d+$")).wait_for()
    keys.press("Escape")
    page.get_by_text("none chosen").wait_for()
    tab_to("tab", "Matches", back=True)
    keys.press("ArrowRight")
    page.get_by_role("region", name="MatchRecognize").wait_for()
    keys.press("ArrowRight")
    tab_to("grid", "Results")
    keys.press("Control+End")
    keys.press("Enter")
    page.get_by_role("complementary", name="Cell").wait_for()
    tab_to("a", "Streams", back=True)
    keys.press("Enter")
    tab_to("a", "steps")
    keys.press("Enter")
    tab_to("img", "Events over time")
    keys.press("ArrowRight")
    tab_to("a", "Tail", back=True)
    keys.press("Enter")
    page.get_by_role("button", name="Pause").wait_for()
