"""First calls: what each kind of work costs a fresh process the first time, and the second.

Purpose
    Nothing is compiled, and little is loaded, while somebody waits for an answer.  Each case runs
    twice in a process of its own, over the week of heating of :mod:`.startup`; the figures are
    processor time, workers included, since that does not depend on what else the machine does.

Limits
    What a process takes to start and to open the store is in :mod:`.startup`.  The processes do
    without pandas, as the command line does: pyarrow would load it where it is installed.
"""

from __future__ import annotations

import csv
import datetime as dt
import functools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

import chronicle

from ..ingest import IngestRequest, Target, ingest
from ..isolation.fork_server import do_without_pandas
from .harness import Row, Section
from .startup import COMMAND, MATCH, TUMBLE, heating

__all__ = ["run"]

MORE = 0.7
"""Seconds that a first call may take beyond a second one."""

ROWS = 2_000
"""Events of each file that is ingested."""

Case = Callable[[Path, int], None]
"""Does the work of a case in a directory, for the first time (0) or the second (1)."""

_PATTERN = (
    "MATCH_RECOGNIZE (PARTITION BY room ORDER BY at MEASURES A.at AS a, B.at AS b "
    "PATTERN (A B) WITHIN INTERVAL '5' MINUTE {} DEFINE A AS celsius > 21, B AS celsius < 21)"
)
_SITUATIONS = (
    "MATCH_SITUATIONS (PARTITION BY room MEASURES DETECTED() AS found PATTERN (A OVERLAPS B) "
    "WITHIN INTERVAL '2' HOUR {} DEFINE A AS celsius < 18, B AS airing = 1)"
)
_GROUPED = (
    "SELECT window_start, room, avg(celsius) AS c FROM {} GROUP BY window_start, window_end, room"
)
_DAILY = _GROUPED.format("TUMBLE(heating, at, INTERVAL '1' DAY)")
_HOP = _GROUPED.format("HOP(heating, at, INTERVAL '1' HOUR, INTERVAL '3' HOUR)")
_SESSION = _GROUPED.format("SESSION(heating PARTITION BY room, at, INTERVAL '2' MINUTE)")
_RECENT = (
    f"SELECT l.room, l.a, a.b FROM heating {_PATTERN.format('')} AS l RECENT JOIN heating "
    f"{_PATTERN.format('')} AS a ON a.room = l.room WITHIN INTERVAL '30' MINUTE"
)
_NEAR = (
    "SELECT f.at, f.celsius, g.celsius AS other FROM heating AS f JOIN heating AS g "
    "ON g.room = f.room AND g.at BETWEEN f.at - INTERVAL '2' MINUTE AND f.at WHERE f.airing = 1"
)

QUERIES = {
    "sum": "SELECT sum(celsius) FROM heating",
    "filter": "SELECT * FROM heating WHERE celsius < 12",
    "keys": "SELECT room, avg(celsius) FROM heating GROUP BY room",
    "order and limit": "SELECT * FROM heating ORDER BY celsius DESC LIMIT 5",
    "TUMBLE": TUMBLE,
    "TUMBLE_ROWS": "SELECT window_start, avg(celsius) FROM TUMBLE_ROWS(heating, 100) GROUP BY ALL",
    "HOP": _HOP,
    "SESSION": _SESSION,
    "MATCH_RECOGNIZE": MATCH,
    **{
        f"MATCH_RECOGNIZE, {selection}": f"SELECT count(*) FROM heating "
        f"{_PATTERN.format('EVENT SELECTION ' + selection)}"
        for selection in ("CONTIGUOUS", "SKIP TILL NEXT MATCH", "SKIP TILL ANY MATCH")
    },
    "MATCH_SITUATIONS": f"SELECT * FROM heating {_SITUATIONS.format('')}",
    "MATCH_SITUATIONS, EMIT ON DETECTION": "SELECT * FROM heating "
    + _SITUATIONS.format("EMIT ON DETECTION"),
    "RECENT JOIN": _RECENT,
    "join of windows": f"SELECT * FROM ({_DAILY}) AS d JOIN ({_HOP}) AS h USING (window_start)",
    "join by time": _NEAR,
}

LIVE = {
    "rows": "SELECT at, room FROM heating WHERE celsius < 12",
    "TUMBLE": _DAILY,
    "HOP": _HOP,
    "SESSION": _SESSION,
    "MATCH_RECOGNIZE": f"SELECT * FROM heating {_PATTERN.format('')}",
    "MATCH_SITUATIONS": f"SELECT * FROM heating {_SITUATIONS.format('')}",
    "RECENT JOIN": _RECENT,
    "join": _NEAR,
    "UNION ALL": "SELECT at, room FROM heating WHERE celsius < 12 UNION ALL "
    "SELECT at, room FROM heating WHERE celsius > 22",
    "subquery": f"SELECT * FROM ({_DAILY}) MATCH_RECOGNIZE (PARTITION BY room "
    "ORDER BY window_start MEASURES A.c AS a, B.c AS b PATTERN (A B) WITHIN INTERVAL '3' DAY "
    "DEFINE B AS c > A.c)",
}

FORMATS = ("csv", "ndjson", "json", "parquet", "arrow", "lp", "cloudevents")

PAGES: dict[str, tuple[tuple[str, str, dict[str, Any] | bytes | None], ...]] = {
    "query": (
        ("POST", "/v1/check", {"sql": TUMBLE}),
        ("POST", "/v1/query", {"sql": "SELECT * FROM heating LIMIT 100"}),
    ),
    "plan": (("POST", "/v1/explain", {"sql": TUMBLE, "analyze": True}),),
    "matches": (("POST", "/v1/matches", {"sql": MATCH}),),
    "import": (("POST", "/v1/ingest/preview", b"at,x\n2026-01-01 00:00:00,1\n"),),
    "streams": (("GET", "/v1/streams", None), ("GET", "/v1/streams/heating", None)),
    "profile": (("GET", "/v1/streams/heating/profile", None),),
    "indexes": (("GET", "/v1/streams/heating/indexes", None),),
    "live": (("GET", "/v1/live", None),),
    "views": (("GET", "/v1/views", None),),
    "running": (("GET", "/v1/queries", None),),
    "jobs": (("GET", "/v1/jobs", None),),
    "admin": (("GET", "/v1/tokens", None), ("GET", "/v1/status", None)),
    "backups": (("GET", "/v1/backups", None),),
    "health": (("GET", "/readyz", None), ("GET", "/metrics", None)),
    "storage": (("GET", "/v1/streams", None), ("GET", "/v1/status", None)),
}
"""Pages of the console, and the requests that they make of a server."""


def _late(database: Any) -> None:
    """Append a hundred events once more, an hour earlier."""
    database.sql(
        "INSERT INTO heating BY NAME SELECT * REPLACE (at - INTERVAL '1' HOUR AS at) "
        "FROM heating ORDER BY at DESC LIMIT 100"
    )


def _compacted(database: Any) -> None:
    _late(database)
    database.stream("heating").compact()


def _ask(database: Any, number: int, text: str) -> None:
    database.sql(text).fetchall()


def _follow(database: Any, number: int, text: str) -> None:
    """Make a live query, bring an event, and read what there is."""
    name = f"live{number}"
    database.sql(f"CREATE LIVE QUERY {name} START AT FIRST AS {text}")
    database.sql(
        "INSERT INTO heating SELECT max(at) + INTERVAL '1' MINUTE, 'attic', 11.0, 1 FROM heating"
    )
    database.sql(f"SELECT count(*) FROM {name}").fetchall()


def _statements() -> dict[str, Callable[[Any, int], object]]:
    """What is done with an open database."""
    cases: dict[str, Callable[[Any, int], object]] = {}
    for name, text in QUERIES.items():
        cases[name] = functools.partial(_ask, text=text)
    for name, text in LIVE.items():
        cases[f"live query: {name}"] = functools.partial(_follow, text=text)
    cases |= {
        "CREATE INDEX": lambda db, number: db["heating"].create_index(("celsius", "room")[number]),
        "DELETE": lambda db, number: db.sql(f"DELETE FROM heating WHERE celsius < {number + 9}"),
        "UPDATE": lambda db, number: db.sql(
            f"UPDATE heating SET airing = 2 WHERE celsius < {number + 9}"
        ),
        "late events": lambda db, number: _late(db),
        "late events, then compaction": lambda db, number: _compacted(db),
    }
    return cases


def _ingest(directory: Path, number: int, format: str) -> None:
    name = f"made{number}"
    file = directory / f"{name}.{'ndjson' if format == 'cloudevents' else format}"
    asked = IngestRequest(
        inputs=[str(file)],
        stream=name,
        create=True,
        time="time" if format in ("lp", "cloudevents") else "at",
        format="cloudevents" if format == "cloudevents" else None,
    )
    report = ingest(asked, Target(path=directory / "store"))
    assert report.stored == ROWS, format


def _files(directory: Path, format: str) -> None:
    """Files of a format, of the same events, for the first time and the second."""
    import pyarrow as pa
    from pyarrow import feather, parquet

    start = dt.datetime(2026, 1, 1)
    rows = [
        {"at": (start + dt.timedelta(minutes=i)).isoformat(), "room": "attic", "celsius": i / 8}
        for i in range(ROWS)
    ]
    suffix = "ndjson" if format == "cloudevents" else format
    for name in (directory / f"made{number}.{suffix}" for number in (0, 1)):
        if format in ("parquet", "arrow"):
            table = pa.Table.from_pylist(
                [{**row, "at": dt.datetime.fromisoformat(str(row["at"]))} for row in rows]
            )
            if format == "parquet":
                parquet.write_table(table, name)
            else:
                feather.write_feather(table, str(name), compression="uncompressed")
            continue
        with open(name, "w", newline="") as file:
            if format == "csv":
                writer = csv.DictWriter(file, rows[0])
                writer.writeheader()
                writer.writerows(rows)
            elif format == "json":
                json.dump(rows, file)
            elif format == "ndjson":
                file.writelines(json.dumps(row) + "\n" for row in rows)
            elif format == "lp":
                file.writelines(
                    f"heating,room=attic celsius={i / 8} {10**18 + i * 60 * 10**9}\n"
                    for i in range(ROWS)
                )
            else:
                file.writelines(
                    json.dumps(
                        {"specversion": "1.0", "id": str(i), "source": "/attic", "type": "heat"}
                        | {"time": f"{row['at']}Z", "data": {"celsius": row["celsius"]}}
                    )
                    + "\n"
                    for i, row in enumerate(rows)
                )


def _spent() -> float:
    """Processor seconds of this process and of its workers."""
    own = psutil.Process()
    total: float = 0
    for process in (own, *own.children(recursive=True)):
        times = process.cpu_times()
        total += times.user + times.system
    times = own.cpu_times()
    return float(total + times.children_user + times.children_system)


def _measured(work: Callable[[int], object]) -> None:
    """Do it twice, and print what each took."""
    for number in (0, 1):
        begun = _spent()
        work(number)
        print(f"took {_spent() - begun}", flush=True)


def _one(name: str, directory: Path) -> None:
    """A case, in this process."""
    do_without_pandas()
    if name.startswith("ingest: "):
        _measured(lambda number: _ingest(directory, number, name.removeprefix("ingest: ")))
        return
    with chronicle.open(directory / "store") as database:
        if not name.startswith("console: "):
            work = _statements()[name]
            _measured(lambda number: work(database, number))
            return
        from fastapi.testclient import TestClient

        from ..server import create_app, load_settings

        app = create_app(database, load_settings(store=str(directory / "store")))
        local = ("127.0.0.1", 4711)
        with TestClient(app, base_url="http://127.0.0.1", client=local) as client:
            while client.get("/readyz").status_code != 200:
                pass

            def page(_: int) -> None:
                for method, path, body in PAGES[name.removeprefix("console: ")]:
                    content = body if isinstance(body, bytes) else json.dumps(body).encode()
                    answer = client.request(method, path, content=content)
                    assert answer.is_success, (path, answer.text)

            _measured(page)


def _cases() -> list[str]:
    names = [*_statements(), *(f"ingest: {format}" for format in FORMATS)]
    return names + [f"console: {page}" for page in PAGES]


def _first_and_second(name: str, made: Path) -> tuple[float, float]:
    with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as scratch:
        directory = Path(scratch)
        shutil.copytree(made, directory / "store")
        if name.startswith("ingest: "):
            _files(directory, name.removeprefix("ingest: "))
        command = [sys.executable, "-m", "chronicle.bench.first_calls", name, scratch]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    took = [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("took ")]
    return took[0], took[1]


def run(short: bool = False) -> Section:
    """Measure each case; in the median of three processes, of one when short."""
    section = Section(
        "First calls in a fresh process",
        "A week of four rooms, 40,320 events. Processor time of each kind of work in a process of "
        "its own that has opened the store, workers included: the first time, and beside it the "
        f"second. Files have {ROWS:,} events.",
    )
    with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as scratch:
        heating(Path(scratch) / "heating.csv")
        store = Path(scratch) / "store"
        ingest = ["ingest", f"{scratch}/heating.csv", "--stream", "heating", "--time", "at"]
        subprocess.run(
            [*COMMAND, *ingest, "--create", "--store", str(store)], check=True, capture_output=True
        )
        for name in _cases():
            taken = [_first_and_second(name, store) for _ in range(1 if short else 3)]
            first, second = (statistics.median(each) for each in zip(*taken, strict=True))
            section.rows.append(
                Row(
                    name,
                    f"{first:.2f} s",
                    f"{second:.2f} s",
                    f"+{first - second:.2f} s",
                    f"+{MORE} s",
                    first - second <= MORE,
                )
            )
    return section


if __name__ == "__main__":
    _one(sys.argv[1], Path(sys.argv[2]))
