"""Files that are sent to a server: looked at, and stored with what was chosen."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.formats.reader import guess_times
from chronicle.ingest import IngestRequest, Target, ingest
from chronicle.server import create_token

CSV = b"when;name;pressure\n" + b"".join(
    b"2026-03-01 08:%02d:00;p%d;%d.5\n" % (n, n % 3, n) for n in range(50)
)
S = pa.timestamp("s")
LOOK, INGEST = "/v1/ingest/preview", "/v1/ingest"


@pytest.fixture
def api(database: Any, serve_app: Callable[..., Any]) -> Any:
    return serve_app(database, isolation="process")


@pytest.fixture(params=["process", "none"])
def either(request: Any, database: Any, serve_app: Callable[..., Any]) -> Any:
    """Files read by workers, or by the server itself."""
    return serve_app(database, isolation=request.param)


def look(api: Any, body: bytes, **params: Any) -> dict[str, Any]:
    answer = api.post(LOOK, content=body, params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def types(found: dict[str, Any]) -> dict[str, str]:
    return {column["name"]: column["sql_type"] for column in found["columns"]}


def parquet() -> bytes:
    out = io.BytesIO()
    table = pa.table({"n": [1, 2], "at": pa.array([10**9, 2 * 10**9], pa.timestamp("ns"))})
    pq.write_table(table, out)
    return out.getvalue()


def test_csv_is_looked_at_and_stored(either: Any, database: Any) -> None:
    found = look(either, CSV, limit=3)
    assert (found["format"], found["time"], found["time_format"]) == ("csv", "when", "iso")
    assert types(found) == {"when": "timestamp", "name": "varchar", "pressure": "double"}
    assert found["rows"][1] == {"when": "2026-03-01T08:01:00", "name": "p1", "pressure": 1.5}
    assert len(found["rows"]) == 3
    assert (found["looked_at"], found["rejected"]) == (50, 0)
    assert not database.streams()

    chosen = {"stream": "pumps", "create": True, "time": "when", "types": "pressure=real"}
    answer = either.post(INGEST, content=CSV, params=chosen)
    assert answer.status_code == 200, answer.text
    done = answer.json()
    assert (done["created"], done["appended"], done["late"], done["count"]) == (True, 50, 0, 50)
    assert types(done) == {"when": "timestamp", "name": "varchar", "pressure": "real"}
    assert done["version"] == either.get("/v1/streams/pumps").json()["version"]
    again = either.post(INGEST, content=CSV, params=chosen)
    assert (again.status_code, again.json()["code"]) == (409, "stream-exists")
    assert "if_exists=append" in again.json()["detail"]
    more = either.post(INGEST, content=CSV, params=chosen | {"if_exists": "append"}).json()
    assert (more["created"], more["appended"], more["count"]) == (False, 50, 100)
    plain = either.post(INGEST, content=CSV, params={"stream": "pumps"}).json()
    assert plain["count"] == 150


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress])
def test_packed_files_need_no_header(api: Any, pack: Callable[[bytes], bytes]) -> None:
    body = pack(CSV)
    assert look(api, body)["compression"] == {gzip.compress: "gzip", bz2.compress: "bz2"}[pack]
    params = {"stream": "s", "create": True, "time": "when"}
    assert api.post(INGEST, content=body, params=params).json()["appended"] == 50


def test_formats_are_told_from_the_bytes(api: Any) -> None:
    rows = [{"id": 7, "event_time": 1533099600 + n, "x": None if n else 1.5} for n in range(3)]
    for body, format in (
        (json.dumps(rows).encode(), "json"),
        ("".join(json.dumps(row) + "\n" for row in rows).encode(), "ndjson"),
    ):
        found = look(api, body)
        assert (found["format"], found["time"], found["time_format"]) == (format, "event_time", "s")
        assert types(found) == {"id": "bigint", "event_time": "timestamp", "x": "double"}
        assert "time_format" in found["notes"][0], found["notes"]
        assert "--" not in found["notes"][0]
    found = look(api, parquet())
    assert (found["format"], found["time"]) == ("parquet", "at")
    assert found["rows"][0] == {"n": 1, "at": "1970-01-01T00:00:01"}
    assert look(api, b"a,b\n1,2\n")["time"] is None
    assert look(api, b"m,k=v x=1.5 1533099600000000000\n", format="lineprotocol")["time"] == "time"


def test_options_are_those_of_the_command(api: Any, database: Any, tmp_path: Any) -> None:
    """The same file with the same options, by the server and by the pipeline beside it."""
    body = b"03.02.2026 10:00|a|N/A|9\n04.02.2026 11:30|b|5|8\n"
    options: dict[str, Any] = {
        "time": "t", "time_format": "%d.%m.%Y %H:%M", "separator": "|",
        "columns": ["at", "name", "x", "y"], "rename": {"at": "t"}, "select": ["name", "x"],
        "types": ["x=smallint"],
    }  # fmt: skip
    sent = options | {"rename": "at=t", "columns": "at,name,x,y", "select": "name,x"}
    sent |= {"format": "csv", "null": "N/A"}
    assert types(look(api, body, **sent)) == {
        "t": "timestamp", "name": "varchar", "x": "smallint",
    }  # fmt: skip
    answer = api.post(INGEST, content=body, params=sent | {"stream": "s", "create": True})
    assert answer.status_code == 200, answer.text
    file = tmp_path / "a.csv"
    file.write_bytes(body)
    request = IngestRequest([str(file)], "other", create=True, nulls=["N/A"], **options)
    ingest(request, Target(catalog=catalog_of(database)))
    for text in ("SELECT * FROM {}", "DESCRIBE {}"):
        ours = database.sql(text.format("s")).arrow()
        assert ours.equals(database.sql(text.format("other")).arrow())


@pytest.mark.parametrize(
    ("body", "options", "message"),
    [
        ("t,v\n2026-01-01,ä\n".encode("latin-1"), {"encoding": "latin-1"}, "encoding=latin-1"),
        ("t,v\n2026-01-01,ä\n".encode("utf-16-le"), {"encoding": "utf-16"}, "encoding=utf-16-le"),
        (
            b't,v\n2026-01-01,"1,234"\n',
            {"decimal": ",", "types": "v=double"},
            "decimal=, or decima",
        ),
        (b't,v\n2026-01-01,"1,234.5"\n', {"decimal": ".", "types": "v=double"}, "decimal=. reads"),
        (b"by hand\nt,v\n2026-01-01,1\n", {"skip": 1}, "skip=N"),
        (b"2026-01-01,1\n", {"header": False, "columns": "t,v"}, "header=false"),
        (b"t^v\n2026-01-01^1\n", {"delimiter": "^"}, "values: delimiter"),
        (b"t,v\n2026-01-01,n/a\n", {"null": "n/a", "types": "v=double"}, "null=n/a reads"),
    ],
)
def test_an_error_names_the_parameter_that_helps(
    api: Any, body: bytes, options: dict[str, Any], message: str
) -> None:
    asked = {"stream": "s", "create": True, "time": "t", "format": "csv"}
    asked |= {"types": options.get("types", [])}
    refused = api.post(INGEST, content=body, params=asked)
    assert refused.status_code == 400, refused.text
    assert message in refused.text
    assert "--" not in refused.text
    for row in refused.json().get("errors", []):
        assert message in row["reason"]
    answer = api.post(INGEST, content=body, params=asked | options)
    assert (answer.status_code, answer.json()["appended"]) == (200, 1), answer.text
    rest = {name: value for name, value in options.items() if name != "types"}
    appended = api.post("/v1/streams/s/events", content=body, params=rest | {"format": "csv"})
    assert (appended.status_code, appended.json()["appended"]) == (200, 1), appended.text


def test_workbooks_and_archives(api: Any) -> None:
    book, out = openpyxl.Workbook(), io.BytesIO()
    for row in (["t", "v"], [dt.datetime(2026, 1, 1), 1.5]):
        book.active.append(row)
    book.create_sheet("other")
    book.save(out)
    found = look(api, out.getvalue(), name="book.xlsx")
    assert (found["time"], types(found)) == ("t", {"t": "timestamp", "v": "double"})
    assert "sheet reads another one (other)" in found["notes"][0]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.csv", "t,v\n2026-01-01,1\n")
    for body in (out.getvalue(), packed.getvalue()):
        asked = {"stream": "s", "create": True, "if_exists": "append", "time": "t"}
        answer = api.post(INGEST, content=body, params=asked)
        assert (answer.status_code, answer.json()["appended"]) == (200, 1), answer.text


def test_local_times_in_two_columns_and_formats(api: Any, database: Any) -> None:
    body = b"day,clock,x\n05.07.2026,12:00,1\n2026-07-06,13:00,2\n2026-10-25,02:30,3\n"
    options = {
        "time": "day", "time_of_day": "clock", "time_zone": "Europe/Berlin",
        "time_format": ["%d.%m.%Y %H:%M", "iso"],
    }  # fmt: skip
    found = look(api, body, **options)
    assert found["time_format"] == options["time_format"]
    assert types(found) == {"day": "timestamp", "x": "bigint"}
    assert [row["day"] for row in found["rows"]] == ["2026-07-05T10:00:00", "2026-07-06T11:00:00"]
    assert "was twice in Europe/Berlin" in found["errors"][0]["reason"]
    into = options | {"stream": "s", "create": True}
    refused = api.post(INGEST, content=body, params=into)
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid-data")
    assert not database.streams()
    assert api.post(INGEST, content=body, params=into | {"ambiguous": "earlier"}).is_success
    rows = database.sql("SELECT * FROM s").arrow().to_pylist()
    assert [(row["day"].day, row["day"].hour, row["x"]) for row in rows] == [
        (5, 10, 1), (6, 11, 2), (25, 0, 3),
    ]  # fmt: skip
    guessed = look(api, body.replace(b"05.07.2026", b"2026-07-05"), time_of_day="clock")
    assert guessed["time"] == "day"
    wrong = api.post(INGEST + "/preview", content=body, params={"time_zone": "Nowhere/Land"})
    assert wrong.json()["code"] == "invalid-argument"


def test_bad_rows(either: Any, database: Any) -> None:
    body = b"t,x\n" + b"".join(b"2026-01-01T00:00:%02d,%d\n" % (n, n) for n in range(40))
    body += b"never,1\n2026-01-01,2,3\n2026-01-01T01:00:00,zzz\n"
    found = look(either, body)
    assert (found["rejected"], [row["row"] for row in found["errors"]]) == (3, [41, 42, 43])
    params = {"stream": "s", "create": True, "time": "t"}
    refused = either.post(INGEST, content=body, params=params)
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid-data")
    assert [row["row"] for row in refused.json()["errors"]] == [41, 42, 43]
    assert database.streams() == []
    skipping = params | {"on_error": "skip"}
    rehearsed = either.post(INGEST, content=body, params=skipping | {"dry_run": True})
    assert rehearsed.json() | {"errors": []} == {
        "stream": "s", "created": False, "dry_run": True, "rows": 40, "appended": 0, "late": 0,
        "count": None, "version": None, "rejected": 3, "errors": [], "notes": [],
        "columns": rehearsed.json()["columns"],
    }  # fmt: skip
    assert database.streams() == []
    done = either.post(INGEST, content=body, params=skipping).json()
    assert (done["appended"], done["rejected"], len(done["errors"])) == (40, 3, 3)


def test_a_file_that_breaks_off_stores_nothing(either: Any, database: Any) -> None:
    params = {"stream": "s", "create": True, "time": "when", "on_error": "skip"}
    rows = json.dumps([{"when": f"2026-01-01T00:00:{n:02d}", "n": n} for n in range(60)]).encode()
    for body in (gzip.compress(CSV)[:-20], rows[:-30], parquet()[:-9]):
        answer = either.post(INGEST, content=body, params=params)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-data"), answer.text
        assert database.streams() == []


@pytest.mark.parametrize(
    ("body", "params", "code"),
    [
        (b"", {}, "invalid-data"),
        (b"{", {}, "invalid-data"),
        (b"t\n", {"time": "t"}, None),
        (CSV, {"time": "wen"}, "invalid-data"),
        (CSV, {"types": "pressure=nosuch"}, "invalid-argument"),
        (CSV, {"rename": "a"}, "invalid-argument"),
        (CSV, {"types": "speed=double"}, "invalid-argument"),
        (CSV, {"time": "name", "time_format": "%Q"}, "invalid-argument"),
        (CSV, {"separator": "xx"}, "invalid-argument"),
        (CSV, {"format": "parquet"}, "invalid-data"),
        (CSV, {"format": "xml"}, "unsupported-media-type"),
        (b"PAR1" + bytes(100), {}, "invalid-data"),
        (b"[" * 100_000, {}, "invalid-data"),
    ],
)
def test_what_cannot_be_read_is_told(
    api: Any, database: Any, body: bytes, params: dict[str, str], code: str | None
) -> None:
    answer = api.post(LOOK, content=body, params=params)
    if code is None:
        assert answer.status_code == 200, answer.text
    else:
        assert answer.json().get("code") == code, answer.text
        assert "--" not in answer.json()["detail"]
    stored = api.post(INGEST, content=body, params={"stream": "s", "create": True, **params})
    assert stored.status_code in (400, 415), stored.text
    assert "--" not in stored.json()["detail"]
    assert database.streams() == []


def test_a_stream_that_exists_says_how(api: Any, database: Any) -> None:
    database.sql("CREATE STREAM s (at TIMESTAMP, n SMALLINT) TIMESTAMP BY at")
    found = look(api, b"n,at\n1,2026-01-01\nx,2026-01-02\n", stream="s")
    assert types(found) == {"at": "timestamp", "n": "smallint"}
    assert (found["time"], found["rejected"]) == ("at", 1)
    wrong = api.post(INGEST, content=b"n,at,z\n1,2026-01-01,2\n", params={"stream": "s"})
    assert (wrong.status_code, wrong.json()["code"]) == (400, "schema-mismatch")
    none = api.post(INGEST, content=CSV, params={"stream": "nosuch"})
    assert (none.status_code, none.json()["code"]) == (404, "stream-not-found")
    assert "create=true" in none.json()["detail"]
    timeless = api.post(INGEST, content=CSV, params={"stream": "new", "create": True})
    assert (timeless.status_code, timeless.json()["code"]) == (400, "invalid-argument")


def test_limits(database: Any, serve_app: Callable[..., Any]) -> None:
    api = serve_app(database, max_part_bytes=1000, max_body_bytes=1000, max_columns=3)
    params = {"stream": "s", "create": True, "time": "when"}
    for path in (LOOK, INGEST):
        large = api.post(path, content=CSV, params=params if path == INGEST else {})
        assert (large.status_code, large.json()["code"]) == (413, "body-too-large")
        bomb = gzip.compress(b"when,x\n" + b"2026-01-01,1\n" * 10_000)
        assert len(bomb) < 1000
        answer = api.post(path, content=bomb, params=params if path == INGEST else {})
        assert (answer.status_code, answer.json()["code"]) == (413, "resource-limit"), answer.text
        wide = api.post(path, content=b"when,a,b,c\n", params=params if path == INGEST else {})
        assert (wide.status_code, wide.json()["code"]) == (413, "resource-limit"), wide.text
    form = api.post(LOOK, content=b"x", headers={"content-type": "multipart/form-data; boundary=a"})
    assert form.status_code == 415
    assert database.streams() == []


def test_who_may_what(database: Any, serve_app: Callable[..., Any]) -> None:
    database.sql("CREATE STREAM s (at TIMESTAMP, n SMALLINT) TIMESTAMP BY at")
    secrets = {
        scope: {"authorization": f"Bearer {create_token(database.path, scope, [scope], ['s*'])[1]}"}
        for scope in ("read", "ingest", "write")
    }
    api = serve_app(database)
    body = b"at,n\n2026-01-01,1\n"

    def ask(scope: str, **params: Any) -> int:
        found = api.post(INGEST, content=body, params=params, headers=secrets[scope])
        return int(found.status_code)

    assert ask("read", stream="s") == 403
    assert ask("ingest", stream="s") == 200
    assert ask("ingest", stream="other") == ask("write", stream="other", create=True) == 403
    assert ask("ingest", stream="s2", create=True, time="at") == 403
    assert ask("write", stream="s2", create=True, time="at") == 200
    assert api.post(LOOK, content=body, headers=secrets["read"]).status_code == 403
    assert api.post(LOOK, content=body, headers=secrets["ingest"]).status_code == 200
    other = api.post(LOOK, content=body, params={"stream": "x"}, headers=secrets["ingest"])
    assert other.status_code == 403


def test_a_store_that_is_read_takes_no_files(
    database: Any, tmp_path: Any, serve_app: Callable[..., Any]
) -> None:
    database.close()
    with chronicle.open(tmp_path / "store", mode="r") as reading:
        api = serve_app(reading)
        for path in (LOOK, INGEST):
            answer = api.post(path, content=CSV, params={"stream": "s"})
            assert (answer.status_code, answer.json()["code"]) == (403, "read-only-store")


@pytest.mark.parametrize(
    ("columns", "time"),
    [
        ({"a": [1, 2], "b": ["x", "y"]}, None),
        ({"timestamp": [1533099600, 1533099601], "x": [1, 2]}, "timestamp"),
        ({"x": [1533099600, 1533099601]}, None),
        ({"day": pa.array([1], pa.date32()), "seen": pa.array([1], pa.timestamp("us"))}, "seen"),
        ({"first": pa.array([1], S), "created_at": pa.array([1], S)}, "created_at"),
        ({"eventTime": ["1533099600000", "1533099601000"]}, "eventTime"),
        ({"time": ["soon", "later"]}, None),
        ({"ts": [1, 2, 3], "n": [4, 5, 6]}, "ts"),
        ({"at": pa.nulls(3, pa.timestamp("us"))}, None),
        ({"n": ["1", "2"], "Datum": ["01.02.2024 13:00", None]}, "Datum"),
        ({"n": ["1.5", "2.5"], "v": ["1.2.3", "4.5.6"]}, None),
        ({"day": ["01.02.2024"], "seen": pa.array([1], pa.timestamp("us"))}, "seen"),
    ],
)  # fmt: skip
def test_the_time_is_guessed(columns: dict[str, Any], time: str | None) -> None:
    assert guess_times(pa.record_batch(columns)).time == time


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (["Datum;n", "01.02.2024 13:00;1"], ("Datum", "%d.%m.%Y %H:%M", None)),
        (["n;at", "1;2024-02-01 1:05 PM"], ("at", "%Y-%m-%d %I:%M %p", None)),
        (["n;day", "1;13.02.24"], ("day", "%d.%m.%y", None)),
        (["n;x", "1;10/Oct/2000:13:55:36 -0700"], ("x", "%d/%b/%Y:%H:%M:%S %z", None)),
        (["ts;n", "1700000000;1"], ("ts", "s", None)),
        (["date;time;n", "2024-02-01;13:00:01;1"], ("date", "iso", "time")),
        (["n;Tag;Uhr", "1;01.02.2024;9:30"], ("Tag", "%d.%m.%Y %H:%M", "Uhr")),
    ],
)
def test_a_look_proposes_how_times_are_read(
    api: Any, lines: list[str], wanted: tuple[str, str, str | None]
) -> None:
    """What it proposes, an ingest takes."""
    body = "\n".join([*lines, ""]).encode()
    found = look(api, body)
    time, time_format, time_of_day = wanted
    assert (found["time"], found["time_format"], found["time_of_day"]) == wanted
    assert found["rejected"] == 0
    assert types(found)[time].startswith("timestamp")
    asked = {"stream": "s", "create": True, "time": time, "time_format": time_format}
    if time_of_day is not None:
        asked["time_of_day"] = time_of_day
    assert api.post(INGEST, content=body, params=asked).json()["appended"] == 1


def test_a_look_leaves_open_what_only_people_know(api: Any) -> None:
    body = b"at,n\n1/2/2024,3\n3/4/2024,5\n"
    found = look(api, body)
    assert (found["time"], found["time_format"]) == ("at", None)
    assert found["time_formats"] == ["%d/%m/%Y", "%m/%d/%Y"]
    assert found["rows"][0] == {"at": "1/2/2024", "n": 3}
    given = look(api, body, time_format="%m/%d/%Y")
    assert (given["time_format"], given["time_formats"]) == ("%m/%d/%Y", [])
    assert given["rows"][0]["at"] == "2024-01-02T00:00:00"
