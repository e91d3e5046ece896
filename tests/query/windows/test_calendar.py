"""Windows by the calendar: against the clocks of Python's zones, answered in every way."""

from __future__ import annotations

import datetime as dt
import pickle
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database, catalog_of
from chronicle.catalog.store_catalog import StoreCatalog
from chronicle.errors import InvalidArgument, SqlError
from chronicle.query.plan.division import divide
from chronicle.query.sql.dialect import parse_statement
from chronicle.query.windows.spec import CalendarWindows
from chronicle.store.store import Store
from chronicle.tests.memory_files import MemoryFiles
from chronicle.tests.rounds import LONG

UTC = dt.timezone.utc
EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)
MONDAY = dt.date(1969, 12, 29)
FIRST_DAY = dt.date(1970, 1, 1)
ZONES = (
    None, "Europe/Berlin",
    "America/Sao_Paulo",  # clocks changed at midnight
    "Pacific/Apia",  # without the 30th of December 2011
    "America/Havana",  # midnight came twice
    "Asia/Kolkata",
)  # fmt: skip
SIZES = {
    "1 DAY": (0, 1), "3 DAY": (0, 3), "1 WEEK": (0, 7), "14 DAY": (0, 14),
    "1 MONTH": (1, 0), "2 MONTH": (2, 0), "1 QUARTER": (3, 0), "1 YEAR": (12, 0),
}  # fmt: skip


def interval(size: str) -> str:
    count, unit = size.split()
    return f"INTERVAL '{count}' {unit}"


def window_of(moment: dt.datetime, months: int, days: int, zone: str | None) -> tuple[Any, Any]:
    """Start and end of the window that holds an instant, both UTC."""
    clocks = ZoneInfo(zone or "UTC")
    local = moment.astimezone(clocks).date()

    def instant(date: dt.date) -> dt.datetime:
        return dt.datetime(date.year, date.month, date.day, tzinfo=clocks).astimezone(UTC)

    if months:
        number = (local.year * 12 + local.month - 1 - 1970 * 12) // months * months + 1970 * 12
        ends = (number, number + months)
        return tuple(instant(dt.date(n // 12, n % 12 + 1, 1)) for n in ends)  # type: ignore[return-value]
    origin = MONDAY if days % 7 == 0 else FIRST_DAY
    first = origin + dt.timedelta((local - origin).days // days * days)
    return instant(first), instant(first + dt.timedelta(days))


def moments(rng: random.Random) -> list[dt.datetime]:
    """Instants in random order, many of them around the changes of the zones."""
    changes = [
        dt.datetime(2011, 12, 30, 10), dt.datetime(2018, 3, 25, 1), dt.datetime(2018, 10, 28, 1),
        dt.datetime(2018, 11, 4, 3), dt.datetime(2018, 2, 18, 2), dt.datetime(2018, 11, 4, 5),
        dt.datetime(1969, 12, 31, 23), dt.datetime(2016, 2, 29),
        dt.datetime(2040, 3, 25, 1),  # Arrow's zones end with 2037
    ]  # fmt: skip
    found = []
    for change in changes:
        near = [rng.randrange(-4 * 86_400, 4 * 86_400) for _ in range(60)]
        found += [change + dt.timedelta(seconds=s) for s in near]
        found += [change + dt.timedelta(seconds=s) for s in (-3600, -1, 0, 1, 3599, 3600)]
    years = [rng.randrange(3 * 31_536_000) for _ in range(600)]
    found += [dt.datetime(2017, 1, 1) + dt.timedelta(seconds=s) for s in years]
    rng.shuffle(found)
    return [moment.replace(tzinfo=UTC) for moment in found]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, list[Any]]]:
    with chronicle.open(tmp_path_factory.mktemp("calendar") / "store") as db:
        db.sql(
            "CREATE STREAM s (t TIMESTAMP, k VARCHAR, x INTEGER) TIMESTAMP BY t "
            "WITH (leaf_bytes = 1024, compaction = 'manual')"
        )
        rng = random.Random(4)
        found = [(m, f"k{rng.randrange(3)}", rng.randrange(100)) for m in moments(rng)]
        for begin in range(0, len(found), 400):
            rows = [{"t": m, "k": k, "x": x} for m, k, x in found[begin : begin + 400]]
            db.stream("s").append(rows)
        yield db, found


def call(size: str, zone: str | None) -> str:
    return f"TUMBLE(s, t, {interval(size)}{f', time_zone => {zone!r}' if zone else ''})"


def expected(events: list[Any], size: str, zone: str | None) -> dict[Any, list[Any]]:
    months, days = SIZES[size]
    groups: dict[Any, list[Any]] = defaultdict(list)
    for moment, k, x in events:
        start, end = window_of(moment, months, days, zone)
        groups[start.replace(tzinfo=None), end.replace(tzinfo=None)].append((k, x))
    return groups


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("size", SIZES)
def test_windows_are_those_of_the_clocks(filled: Any, size: str, zone: str | None) -> None:
    if zone is None and SIZES[size][1]:
        zone = "UTC"
    db, events = filled
    groups = expected(events, size, zone)
    wanted = sorted((*w, len(g), sum(x for _, x in g)) for w, g in groups.items())
    for strategy in ("index", "replay"):
        found = db.sql(
            f"SELECT /*+ strategy({strategy}) */ window_start, window_end, count(*), sum(x) "
            f"FROM {call(size, zone)} GROUP BY window_start, window_end"
        ).fetchall()
        assert found == wanted, strategy
    keyed = db.sql(
        f"SELECT window_start, window_end, k, count(*) FROM {call(size, zone)} WHERE x < 50 "
        "GROUP BY window_start, window_end, k"
    ).fetchall()
    by_key = {
        (*w, k): n
        for w, g in groups.items()
        for k in ("k0", "k1", "k2")
        if (n := sum(1 for key, x in g if key == k and x < 50))
    }
    assert {row[:3]: row[3] for row in keyed} == by_key
    median = db.sql(
        f"SELECT window_start, window_end, count(DISTINCT x) FROM {call(size, zone)} "
        "GROUP BY window_start, window_end ORDER BY window_start"
    ).fetchall()
    assert median == sorted((*w, len({x for _, x in g})) for w, g in groups.items())


def test_a_range_of_time_and_every_event_with_its_window(filled: Any) -> None:
    db, events = filled
    low, high = dt.datetime(2018, 3, 10), dt.datetime(2018, 11, 20)
    inside = [e for e in events if low <= e[0].replace(tzinfo=None) < high]
    groups = expected(inside, "1 MONTH", "Europe/Berlin")
    condition = "t >= TIMESTAMP '2018-03-10' AND t < TIMESTAMP '2018-11-20'"
    found = db.sql(
        f"SELECT window_start, window_end, count(*) FROM {call('1 MONTH', 'Europe/Berlin')} "
        f"WHERE {condition} GROUP BY window_start, window_end"
    ).fetchall()
    assert found == sorted((*w, len(g)) for w, g in groups.items())
    days = call("1 DAY", "Europe/Berlin")
    rows = db.sql(f"SELECT t, window_start, window_end FROM {days} WHERE {condition}").fetchall()
    assert len(rows) == len(inside)
    assert all(start <= t < end for t, start, end in rows)
    none = "t > TIMESTAMP '2041-01-01'"
    assert (
        db.sql(
            f"SELECT window_start, count(*) FROM {call('1 YEAR', None)} WHERE {none} GROUP BY 1"
        ).fetchall()
        == []
    )


def test_the_zone_may_be_a_parameter_and_explain_tells_it(filled: Any) -> None:
    db, _ = filled
    text = (
        "SELECT window_start, count(*) FROM TUMBLE(s, t, INTERVAL '1' MONTH, time_zone => ?) "
        "GROUP BY window_start"
    )
    here = db.sql(text, ["Europe/Berlin"]).fetchall()
    assert here != db.sql(text, ["UTC"]).fetchall()
    plan = str(db.explain(text.replace("?", "'Europe/Berlin'"), analyze=True))
    assert "calendar, 1 month, time zone Europe/Berlin" in plan


def test_a_stream_with_a_zone_or_without_events(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "store") as db:
        db.sql("CREATE STREAM z (t TIMESTAMPTZ, x DOUBLE) TIMESTAMP BY t")
        text = (
            "SELECT window_start, window_end, count(*) FROM TUMBLE(z, t, INTERVAL '1' DAY, "
            "time_zone => 'Europe/Berlin') GROUP BY window_start, window_end"
        )
        assert db.sql(text).fetchall() == []
        db.sql("INSERT INTO z VALUES ('2018-03-25 12:00:00+00', 1), ('2018-03-24 23:30:00+00', 2)")
        ((start, end, count),) = db.sql(text).fetchall()
        assert (start, end, count) == (
            dt.datetime(2018, 3, 24, 23, tzinfo=UTC), dt.datetime(2018, 3, 25, 22, tzinfo=UTC), 2,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("TUMBLE(s, t, INTERVAL '1' HOUR, time_zone => 'Europe/Berlin')", "whole days"),
        ("TUMBLE(s, t, INTERVAL '1' DAY, time_zone => '')", "such as 'Europe/Berlin'"),
        ("TUMBLE(s, t, INTERVAL '1' DAY, time_zone => 3)", "name of a time zone"),
        ("TUMBLE(s, t, INTERVAL '1' MONTH, 'first')", "have no origin"),
        ("TUMBLE(s, t, INTERVAL '0' MONTH)", "(?i)fixed length|found 0"),
        ("TUMBLE(s, t, INTERVAL '900000' YEAR)", "found"),
        ("TUMBLE(s, t, INTERVAL '1' DAY, zone => 'UTC')", "no argument 'zone'"),
        ("HOP(s, t, INTERVAL '1' DAY, INTERVAL '2' DAY, time_zone => 'UTC')", "no argument"),
        ("TUMBLE(n, t, INTERVAL '1' MONTH)", "has no calendar"),
        ("TUMBLE(n, t, 5, time_zone => 'UTC')", "has no calendar"),
    ],
)
def test_what_is_refused(tmp_path: Path, call: str, message: str) -> None:
    with chronicle.open(tmp_path / "store") as db:
        db.sql("CREATE STREAM s (t TIMESTAMP) TIMESTAMP BY t")
        db.sql("CREATE STREAM n (t BIGINT) TIMESTAMP BY t")
        with pytest.raises(SqlError, match=message):
            db.sql(f"SELECT window_start, count(*) FROM {call} GROUP BY window_start").fetchall()


def test_other_processes_run_it_in_one_part(filled: Any) -> None:
    db, _ = filled
    text = (
        "SELECT window_start, count(*) FROM TUMBLE(s, t, INTERVAL '1' MONTH) GROUP BY window_start"
    )
    engine = catalog_of(db).engine
    divided = divide(
        engine.plan(parse_statement(text), text), catalog_of(db).snapshot, lambda size: 4
    )
    assert (divided.kind, len(divided.parts)) == ("whole", 1)
    plan = pickle.loads(pickle.dumps(divided.parts[0])).plan
    assert engine.run_plan(plan).arrow().equals(db.sql(text).arrow())


def test_live_queries_refuse_them(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "store") as db:
        db.sql("CREATE STREAM s (t TIMESTAMP) TIMESTAMP BY t")
        with pytest.raises(SqlError, match="follow the calendar"):
            db.sql(
                "CREATE LIVE QUERY q AS SELECT window_start, count(*) AS n "
                "FROM TUMBLE(s, t, INTERVAL '1' MONTH) GROUP BY window_start, window_end"
            )


AT_THE_ENDS = {"1 MONTH": (1, 0), "250 YEAR": (3000, 0), "90000 DAY": (0, 90_000)}


@pytest.mark.parametrize("zone", ZONES if LONG else ["America/Havana"])
def test_windows_at_the_ends_of_nanoseconds(zone: str | None) -> None:
    low, high, second = -(2**63), 2**63 - 1, 10**9
    near = [0, 1, second, second // 2, 11 * 86_400 * second, 25 * 86_400 * second]
    ticks = sorted([low + n for n in near] + [high - n for n in near] + [-1, 0, high])
    with Database(StoreCatalog(Store.open("mem", files=MemoryFiles()))) as db:
        db.sql("CREATE STREAM s (t TIMESTAMP_NS) TIMESTAMP BY t")
        times = pa.array(ticks, pa.int64()).cast(pa.timestamp("ns"))
        db.stream("s").append(pa.table({"t": times}))
        for size, (months, days) in (SIZES | AT_THE_ENDS if LONG else AT_THE_ENDS).items():
            if zone is None and days:
                continue
            wanted: Counter[tuple[int, int]] = Counter()
            for tick in ticks:
                moment = EPOCH + dt.timedelta(seconds=tick // second)
                start, end = (
                    (instant - EPOCH) // dt.timedelta(seconds=1) * second
                    for instant in window_of(moment, months, days, zone)
                )
                wanted[max(start, low), min(end, high)] += 1
            for count in ("count(*)", "count(DISTINCT t) + count(*) - count(DISTINCT t)"):
                rows = db.sql(
                    f"SELECT window_start, window_end, {count} FROM {call(size, zone)} "
                    "GROUP BY window_start, window_end ORDER BY window_start"
                ).arrow()
                columns = (column.cast(pa.int64()).to_pylist() for column in rows.columns)
                found = [((a, b), n) for a, b, n in zip(*columns, strict=True)]
                assert found == sorted(wanted.items()), (size, count)


def test_times_beyond_the_calendar() -> None:
    months = CalendarWindows(1, 0, "Europe/Berlin")
    with pytest.raises(InvalidArgument, match="years 1 to 9999"):
        months.calendar(-(2**62), 0, 1)
    with pytest.raises(InvalidArgument, match="years 1 to 9999"):
        months.calendar(0, 2**62, 1)
    last = 2**63 - 1  # nanoseconds end in April 2262
    edges = months.calendar(last - 10**9, last, 10**9).edges
    assert edges[0] <= last - 10**9
    assert np.all(np.diff(edges) > 0)
    lowest = -(2**63)
    edges = months.calendar(lowest, lowest + 1, 10**9).edges
    assert np.all(np.diff(edges) > 0)
    everything = months.calendar(-62_135_000_000, 253_402_000_000, 1)
    assert everything.edges.size > 119_900
