"""The console's files and the routes that it asks: headers, rights, shapes."""

from __future__ import annotations

import gzip
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import SqlError
from chronicle.query.matches import match_outline, recent_outline
from chronicle.server.access.auth import Principal
from chronicle.server.access.tokens import INCLUDED, create_token
from chronicle.server.routes.pages import POLICY, load_assets
from chronicle.store.segment import ScanMetrics

PACKAGE = Path(chronicle.__file__).parent
CLAUSE = """SELECT n FROM steps MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY t MEASURES A.v AS n {rows}
  AFTER MATCH SKIP TO NEXT ROW PATTERN (A {- B+ -} C)
  DEFINE B AS v > PREV(v), C AS v < 0
) AS m WHERE n > 0"""


@pytest.fixture
def console(tmp_path: Path, serve_app: Callable[..., Any]) -> Iterator[Any]:
    """A server over one small stream of steps."""
    with chronicle.open(tmp_path / "store") as database:
        schema = pa.schema([("t", pa.timestamp("us")), ("k", pa.string()), ("v", pa.int64())])
        stream = database.create_stream("steps", schema, time="t")
        rows = [
            (np.datetime64(i, "s"), "ab"[i % 2], v)
            for i, v in enumerate([1, 1, 2, 2, 3, -1, -4, 5])
        ]
        stream.append([dict(zip("tkv", row, strict=True)) for row in rows])
        yield serve_app(database)


def test_the_page_has_the_headers_that_keep_it_safe(console: Any) -> None:
    found = console.get("/console/")
    assert found.status_code == 200
    assert found.headers["content-type"] == "text/html; charset=utf-8"
    assert found.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert found.headers["cross-origin-opener-policy"] == "same-origin"
    assert found.headers["referrer-policy"] == "no-referrer"
    again = console.get("/console/", headers={"If-None-Match": found.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_help_and_readme_have_every_page_in_the_same_order() -> None:
    """First steps, how-to pages, reference."""
    help_page = (PACKAGE / "web" / "src" / "pages" / "help.tsx").read_text(encoding="utf-8")
    parts = help_page.partition("const PARTS")[2].partition("\n];")[0]
    listed = re.findall(r'"([a-z_-]+)"', parts)
    assert sorted(listed) == sorted(path.stem for path in (PACKAGE / "docs").glob("*.md"))
    readme = (PACKAGE / "README.md").read_text(encoding="utf-8").partition("## Where to read on")[2]
    linked = list(dict.fromkeys(re.findall(r"\]\(docs/([a-z_-]+)\.md\)", readme)))
    assert linked == listed


def test_files_come_packed_and_nothing_else_comes(console: Any) -> None:
    for name in ("app.js", "editor.js", "arrow-worker.js", "style.css", "NOTICE.txt"):
        found = console.get(f"/console/{name}", headers={"Accept-Encoding": "gzip"})
        assert found.headers["content-encoding"] == "gzip"
        assert found.content == (PACKAGE / "server" / "console" / name).read_bytes()
    assert "# SQL" in console.get("/console/docs/sql.md").text
    assert "sql" in console.get("/console/docs/").text.split()
    for name in ("../app.py", "%2e%2e/app.py", "docs/../../app.py", "nothing.js"):
        assert console.get(f"/console/{name}").status_code == 404


def test_a_browser_is_led_to_the_console_and_a_program_is_not(console: Any) -> None:
    shown = console.get("/", headers={"Accept": "text/html,application/xhtml+xml"})
    assert (shown.status_code, shown.headers["location"]) == (307, "console/")
    assert console.get("/").json()["console"] == "/console/"
    assert console.get("/console").status_code == 308


def test_without_a_console_there_is_none(tmp_path: Path, serve_app: Callable[..., Any]) -> None:
    with chronicle.open(tmp_path / "store") as database:
        client = serve_app(database, console="off")
        assert client.get("/console/").status_code == 404
        assert client.get("/", headers={"Accept": "text/html"}).status_code == 200


def test_a_session_says_what_its_token_may_do(
    tmp_path: Path, serve_app: Callable[..., Any]
) -> None:
    with chronicle.open(tmp_path / "store") as database:
        _, secret = create_token(database.path, "reader", ["read"], ["nab_*"])
        client = serve_app(database, console="read")
        assert client.get("/v1/session").status_code == 401
        found = client.get("/v1/session", headers={"Authorization": f"Bearer {secret}"}).json()
        assert (found["open"], found["console"]) == (False, "read")
        assert (found["name"], found["scopes"], found["streams"]) == ("reader", ["read"], ["nab_*"])
        assert found["may"] == ["read", "metrics"]
        for scope, included in INCLUDED.items():
            _, secret = create_token(database.path, scope, [scope], ["*"])
            told = client.get("/v1/session", headers={"Authorization": f"Bearer {secret}"}).json()
            assert set(told["may"]) == included


def test_the_files_fit_their_budget() -> None:
    """First paint, all that is ever loaded, and what lies in the wheel; in bytes."""
    folder = PACKAGE / "server" / "console"
    packed = {p.name: len(gzip.compress(p.read_bytes(), 9)) for p in folder.iterdir()}
    assert packed["index.html"] + packed["app.js"] + packed["style.css"] <= 80 << 10
    assert sum(size for name, size in packed.items() if name != "NOTICE.txt") <= 350 << 10
    assert sum(p.stat().st_size for p in folder.iterdir()) <= 1_300_000


def test_no_built_file_names_a_place_elsewhere() -> None:
    names = ("npmjs", "unpkg.com", "jsdelivr", "cdnjs", "googleapis", "sourceMappingURL")
    for path in (PACKAGE / "server" / "console").iterdir():
        text = path.read_text()
        assert not [name for name in names if name in text], path.name
        assert str(PACKAGE) not in text
        if path.suffix == ".js":
            assert not re.search(r"\beval\(|new Function\(|document\.write", text), path.name
    lock = PACKAGE / "web" / "package-lock.json"
    if lock.exists():  # not in an installed package
        assert '"resolved"' not in lock.read_text()


def test_assets_are_read_once(tmp_path: Path) -> None:
    assets = load_assets()
    assert {"index.html", "app.js", "docs/sql.md", "docs/"} <= set(assets)
    assert assets["app.js"] == load_assets()["app.js"]  # packed without a time


# ------------------------------------------------------------------------------ routes


def test_a_check_says_what_a_statement_needs_and_runs_nothing(console: Any) -> None:
    found = console.post("/v1/check", json={"sql": "SELECT v FROM steps WHERE v > $least"}).json()
    assert found["reads"] == ["steps"]
    assert (found["kind"], found["scope"], found["parameters"]) == ("Select", "read", ["least"])
    wrong = console.post("/v1/check", json={"sql": "SELECT w\nFROM steps"})
    assert wrong.status_code == 200
    assert wrong.json()["problem"]["position"] == {"line": 1, "column": 8}
    made = console.post("/v1/check", json={"sql": "DROP STREAM steps"}).json()
    assert (made["scope"], made["target"]) == ("admin", "steps")
    assert console.get("/v1/streams/steps").status_code == 200


def test_the_dialect_is_asked_for_once(console: Any) -> None:
    found = console.get("/v1/dialect")
    words = found.json()
    assert "match_recognize" in words["keywords"] or any(
        item["name"] == "MATCH_RECOGNIZE" for item in words["functions"]["operator"]
    )
    assert "avg" in words["functions"]["aggregate"]
    known = {"If-None-Match": found.headers["etag"]}
    assert console.get("/v1/dialect", headers=known).status_code == 304


def test_a_profile_counts_every_event_at_any_zoom(console: Any) -> None:
    for buckets in (1, 3, 8, 400):
        rows = console.get(
            "/v1/streams/steps/profile", params={"attributes": "v", "buckets": buckets}
        ).json()
        assert sum(row["count"] for row in rows) == 8
        assert min(row["min_v"] for row in rows) == -4
        assert max(row["max_v"] for row in rows) == 5
    part = console.get(
        "/v1/streams/steps/profile",
        params={"start": "1970-01-01T00:00:02", "end": "1970-01-01T00:00:05"},
    ).json()
    assert sum(row["count"] for row in part) == 3
    wrong = console.get("/v1/streams/steps/profile", params={"attributes": "k"})
    assert wrong.status_code == 400


def test_a_status_is_one_snapshot(console: Any) -> None:
    console.app.state.server.load.sample()
    found = console.get("/v1/status").json()
    assert found["state"] == "ready"
    assert found["store"]["events"] == 8
    assert found["gates"]["queries"]["limit"] == 8
    assert len(found["history"]["queries_per_s"]) >= 1
    assert found["flight_port"] is None
    console.app.state.flight = SimpleNamespace(port=8001)
    assert console.get("/v1/status").json()["flight_port"] == 8001
    console.app.state.flight = None


def test_views_are_listed_as_far_as_a_token_reaches(console: Any) -> None:
    database = console.app.state.server.database
    assert console.get("/v1/views").json() == {"views": []}
    database.sql("CREATE VIEW fast AS SELECT t, v * 2.5 AS pace FROM steps WHERE v > 1")
    database.sql("CREATE VIEW fast_a AS SELECT * FROM fast")
    first, second = console.get("/v1/views").json()["views"]
    assert first["sql"] == "SELECT t, v * 2.5 AS pace FROM steps WHERE v > 1"
    assert [(c["name"], c["sql_type"]) for c in first["schema"]] == [
        ("t", "timestamp"), ("pace", first["schema"][1]["sql_type"]),
    ]  # fmt: skip
    assert (second["name"], second["reads"]) == ("fast_a", ["fast"])
    told = {
        globs: create_token(database.path, f"reader-{at}", ["read"], globs.split(","))[1]
        for at, globs in enumerate(("fast", "fast*,steps", "steps"))
    }
    found = {}
    for globs, secret in told.items():
        answer = console.get("/v1/views", headers={"authorization": f"Bearer {secret}"})
        found[globs] = {view["name"]: view["reads"] for view in answer.json()["views"]}
    assert found == {
        "fast": {"fast": []}, "steps": {}, "fast*,steps": {"fast": ["steps"], "fast_a": ["fast"]},
    }  # fmt: skip


@pytest.mark.parametrize("rows", ["", "ONE ROW PER MATCH", "ALL ROWS PER MATCH"])
def test_matches_are_outlined_whatever_the_measures_are(console: Any, rows: str) -> None:
    sql = CLAUSE.replace("{rows}", rows)
    found = console.post("/v1/matches", json={"sql": sql}).json()
    assert (found["time"], found["partition"]) == ("t", ["k"])
    assert found["variables"] == ["A", "B", "C"]
    by_key = {(one["partition"][0], one["number"]): one for one in found["matches"]}
    assert set(by_key) == {("a", 1), ("a", 2), ("b", 1)}
    one = by_key["a", 1]
    assert (one["events"], one["variables"]["B"]["count"]) == (4, 2)
    assert one["variables"]["C"]["first"] == "1970-01-01T00:00:06"
    match = {"number": 1, "partition": ["a"]}
    events = console.post("/v1/matches", json={"sql": sql, "mode": "events", "match": match}).json()
    at = events["columns"].index("_variable")
    assert [row[at] for row in events["rows"]] == ["A", "B", "B", "C"]


def test_without_a_match_each_condition_is_counted(console: Any) -> None:
    sql = CLAUSE.replace("{rows}", "").replace("v < 0", "v < $least")
    found = console.post("/v1/matches", json={"sql": sql, "params": {"least": -100}}).json()
    assert found["matches"] == []
    hits = {one["variable"]: one["hits"] for one in found["conditions"]}
    assert hits == {"B": None, "C": 0}


def test_outlines_keep_what_the_clause_reads() -> None:
    text = (
        "WITH few AS (SELECT * FROM steps WHERE v > 1) SELECT * FROM other, "
        '(SELECT t, v FROM few) MATCH_RECOGNIZE (ORDER BY t PATTERN ("a b" X) '
        'DEFINE X AS f(v, 1) > 2, "a b" AS v IN (1, 2))'
    )
    outline = match_outline(text)
    assert outline.source == "(SELECT t, v FROM few)"
    (first, call), (second, listed) = outline.definitions
    assert (first, second) == ("X", "a b")
    assert outline.hits(listed).endswith('WHERE "v" IN (1, 2)')
    with pytest.raises(SqlError, match="no function 'f'"):
        outline.hits(call)
    assert outline.rows("t").startswith("WITH few AS (SELECT * FROM steps WHERE v > 1) SELECT *")
    assert match_outline(outline.rows("t")).variables == outline.variables
    with pytest.raises(SqlError, match="no MATCH_RECOGNIZE"):
        match_outline("SELECT 1")


SIDE = "steps MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES A.v AS v PATTERN (A B) {define})"
JOINS = {
    "patterns": (
        f"SELECT l.v FROM {SIDE.format(define='DEFINE A AS v > 0')} AS l RECENT JOIN "
        f"{SIDE.format(define='DEFINE A AS v > 0')} AS a ON a.k = l.k AND a.v <= l.v "
        "WITHIN INTERVAL '9' SECOND WHERE l.v > 0 ORDER BY 1",
        ("l", "a"),
        ("k",),
    ),
    "streams": ("SELECT 1 FROM steps RECENT LEFT JOIN steps AS b WITHIN $d", ("steps", "b"), ()),
    "three": (
        "WITH up AS (SELECT t, v FROM steps) SELECT * FROM (steps AS x RECENT JOIN steps AS y "
        "ON x.k = y.k WITHIN $d) RECENT JOIN (SELECT * FROM up) AS z PERIOD (t, t) WITHIN $d",
        ("x", "y", "z"),
        (),
    ),
}


@pytest.mark.parametrize("name", JOINS)
def test_pairs_are_those_of_the_join(console: Any, name: str) -> None:
    sql, sides, keys = JOINS[name]
    outline = recent_outline(sql)
    assert (outline.sides, outline.keys) == (sides, keys)
    params = {"d": {"type": "interval", "value": "5000000 microseconds"}} if "$d" in sql else None
    body = {"sql": sql, "params": params, "mode": "pairs", "limit": 1000}
    found = console.post("/v1/matches", json=body).json()
    counted = re.sub(
        r"^(WITH .*?\) )?SELECT .*? FROM", r"\1SELECT count(*) AS n FROM", sql, count=1
    )
    counted = counted.partition(" WHERE")[0]
    asked = {"sql": counted, "params": params}
    (row,) = console.post("/v1/query", json={k: v for k, v in asked.items() if v}).json()["rows"]
    assert len(found["pairs"]) == row["n"] > 0
    assert (found["sides"], found["keys"]) == (list(sides), list(keys))
    for pair in found["pairs"]:
        for later, earlier in itertools.pairwise(pair["times"]):
            assert earlier is None or (earlier[0] < later[0] and earlier[1] < later[1])


def test_joins_without_pairs_say_so(console: Any) -> None:
    for sql, said in (
        ("SELECT 1", "no RECENT JOIN"),
        ("SELECT * FROM steps RECENT ANTI JOIN steps AS b", "no pairs to draw"),
    ):
        found = console.post("/v1/matches", json={"sql": sql, "mode": "pairs"})
        assert found.status_code == 400
        assert said in found.json()["detail"]


def test_what_runs_says_how_far_it_is(console: Any) -> None:
    server = console.app.state.server
    query = server.running.add("q", "query", "SELECT 1", Principal(None, "here"))
    (told,) = console.get("/v1/queries").json()["queries"]
    assert (told["events_read"], told["events_expected"]) == (None, None)
    counter = ScanMetrics()
    query.cancellation.progress.expect([counter], 1_000_000)
    counter.events_read = 7
    (told,) = console.get("/v1/queries").json()["queries"]
    assert (told["events_read"], told["events_expected"]) == (7, 1_000_000)
    text = "SELECT events_read, events_expected FROM chronicle.queries WHERE id = 'q'"
    rows = console.post("/v1/query", json={"sql": text}).json()["rows"]
    assert rows == [{"events_read": 7, "events_expected": 1_000_000}]
    server.running.remove(query)
