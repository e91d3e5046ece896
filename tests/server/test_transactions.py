"""Transactions on a real store: staged, committed once, dropped, swept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from chronicle.api.database import catalog_of, open_database
from chronicle.catalog.streams import handle_of
from chronicle.errors import InvalidArgument, StreamNotFound
from chronicle.indexes.stream_indexes import StreamIndexes
from chronicle.schema import StreamSchema
from chronicle.server.service.transactions import Commit, Transactions
from chronicle.store.store import Store

from .test_idempotency import code_of

SCHEMA = StreamSchema(pa.schema([pa.field("t", pa.int64(), False), ("x", pa.int64())]), "t")


class Served:
    """What transactions need of a database."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = Store.open(path)
        self.now = 1_800_000_000.0
        self.store.create_stream("s", SCHEMA, if_not_exists=True)
        self.transactions = Transactions(self, clock=lambda: self.now)  # type: ignore[arg-type]

    def writer(self, name: str, what: str) -> Any:
        return self.store.writer(name, what)

    def streams(self) -> list[str]:
        return self.store.streams()

    def indexes_of(self, _name: str) -> None:
        return None

    def events(self) -> list[tuple[int, int]]:
        scanned = self.store.stream("s").snapshot().scan()
        return [(row["t"], row["x"]) for batch in scanned for row in batch.to_pylist()]

    def put(self, part: str, rows: list[tuple[int, int]], txn: str = "j") -> dict[str, Any]:
        return self.transactions.put("s", txn, part, iter([batch_of(rows)]))

    def commit(self, *parts: str, txn: str = "j", **more: Any) -> Any:
        return self.transactions.commit("s", txn, Commit(parts, **more))


def batch_of(rows: list[tuple[int, int]]) -> pa.RecordBatch:
    times, values = zip(*rows, strict=True) if rows else ((), ())
    return pa.record_batch(
        [pa.array(times, pa.int64()), pa.array(values, pa.int64())], schema=SCHEMA.arrow
    )


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    database = Served(tmp_path / "store")
    yield database
    database.store.close()


def test_parts_that_come_at_once_have_one_job(served: Served) -> None:
    """The second comes a second later, before the first has a directory."""
    other = threading.Thread(target=served.put, args=("1-0", [(3, 30)]))
    seconds = iter((1_800_000_000.0, 1_800_000_001.0))

    def clock() -> float:
        now = next(seconds)
        if not other.ident:
            other.start()
            other.join(0.3)  # it waits for the first part, or is there before it
        return now

    served.transactions._clock = clock
    served.put("0-0", [(1, 10)])
    other.join()
    served.transactions._clock = lambda: 1_800_000_002.0
    assert served.commit("0-0", "1-0").appended == 2


def test_nothing_is_seen_before_the_commit_and_all_after(served: Served) -> None:
    assert served.put("0-0", [(1, 10), (2, 20)])["rows"] == 2
    assert served.put("1-0", [(3, 30)])["rows"] == 1
    served.put("1-1", [(3, 99)])  # an attempt that does not count
    assert served.events() == []
    done = served.commit("0-0", "1-0")
    assert (done.appended, done.late, done.repeated) == (3, 0, False)
    assert served.events() == [(1, 10), (2, 20), (3, 30)]
    assert not list((served.path / "server" / "transactions").iterdir())
    assert not list((served.path / "streams" / "s" / "staging").iterdir())


def test_a_part_sent_again_replaces_the_first(served: Served) -> None:
    served.put("0", [(1, 10)])
    served.put("0", [(1, 11), (2, 12)])
    assert served.commit("0").appended == 2
    assert served.events() == [(1, 11), (2, 12)]


def test_a_commit_asked_again_does_nothing(served: Served) -> None:
    served.put("0", [(1, 10)])
    first, second = served.commit("0"), served.commit("0")
    assert (second.repeated, second.appended, second.version) == (True, 1, first.version)
    served.store.close()
    again = Served(served.path)
    assert again.commit("0").repeated
    assert again.events() == [(1, 10)]
    assert code_of(lambda: again.put("0", [(5, 5)])) == "transaction-ended"
    again.store.close()


def test_versions_of_an_application_are_committed_once(served: Served) -> None:
    for attempt in ("a", "b"):
        served.put("0", [(1, 10)], txn=attempt)
        done = served.commit("0", txn=attempt, application="q", version=4)
        assert done.repeated is (attempt == "b")
    served.put("0", [(2, 20)], txn="c")
    assert served.commit("0", txn="c", application="q", version=3).repeated
    served.put("0", [(2, 20)], txn="d")
    assert not served.commit("0", txn="d", application="q", version=5).repeated
    assert served.events() == [(1, 10), (2, 20)]


def test_what_was_dropped_stays_dropped(served: Served) -> None:
    served.put("0", [(1, 10)])
    served.transactions.abort("s", "j")
    served.transactions.abort("s", "j")
    assert code_of(lambda: served.put("1", [(1, 10)])) == "transaction-ended"
    assert code_of(lambda: served.commit("0")) == "not-found"
    assert served.events() == []
    assert not list((served.path / "streams" / "s" / "staging").iterdir())


def test_a_part_that_is_missing_stops_the_commit(served: Served) -> None:
    served.put("0", [(1, 10)])
    assert code_of(lambda: served.commit("0", "1")) == "not-found"
    assert served.events() == []
    assert served.commit("0").appended == 1


def test_a_commit_survives_a_restart_in_between(served: Served) -> None:
    served.put("0", [(1, 10)])
    served.store.close()
    again = Served(served.path)
    again.now += 3600  # the job is found by its second half
    assert again.commit("0").appended == 1
    assert again.events() == [(1, 10)]
    again.store.close()


def test_truncate_replaces_everything_at_once(served: Served) -> None:
    served.put("0", [(1, 10), (2, 20)], txn="a")
    served.commit("0", txn="a")
    served.put("0", [(1, 99)], txn="b")
    served.commit("0", txn="b", truncate=True)
    assert served.events() == [(1, 99)]


def test_a_range_is_replaced_at_once(served: Served) -> None:
    served.put("0", [(t, t) for t in range(10)], txn="a")
    served.commit("0", txn="a")
    served.put("0", [(4, 40), (5, 50)], txn="b")
    for over in ((5, None), (None, 5), (6, 6)):
        with pytest.raises(InvalidArgument, match="range that is replaced"):
            served.commit("0", txn="b", over=over)
    done = served.commit("0", txn="b", over=(3, 6))
    assert (done.appended, done.late, done.count) == (2, 0, 9)
    rest = [(t, t) for t in range(10) if not 3 <= t < 6]
    assert served.events() == sorted([*rest, (4, 40), (5, 50)])
    assert served.commit("0", txn="b", over=(3, 6)).repeated
    served.put("0", [(100, 1)], txn="c")
    served.commit("0", txn="c", over=(5, None))
    assert served.events() == [(0, 0), (1, 1), (2, 2), (4, 40), (100, 1)]


def test_events_of_equal_time_keep_the_order_of_the_parts(served: Served) -> None:
    served.put("b", [(5, 1), (5, 2)])
    served.put("a", [(5, 3), (5, 4)])
    served.commit("b", "a")
    assert served.events() == [(5, 1), (5, 2), (5, 3), (5, 4)]


def test_old_transactions_are_swept(served: Served) -> None:
    served.put("0", [(1, 10)])
    served.now += 23 * 3600
    served.transactions.sweep()
    assert list((served.path / "server" / "transactions").iterdir())
    served.now += 2 * 3600
    served.transactions.sweep()
    assert not list((served.path / "server" / "transactions").iterdir())
    assert not list((served.path / "streams" / "s" / "staging").iterdir())


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "x" * 129, "a b"])
def test_names_cannot_leave_their_directory(served: Served, name: str) -> None:
    with pytest.raises(InvalidArgument):
        served.put(name, [(1, 1)])
    with pytest.raises(InvalidArgument):
        served.put("0", [(1, 1)], txn=name)
    with pytest.raises(InvalidArgument):
        served.commit(name)


def test_a_stream_that_is_not_there_is_said(served: Served) -> None:
    transactions = served.transactions
    for call in (
        lambda: transactions.put("no", "j", "0", iter([batch_of([(1, 1)])])),
        lambda: transactions.commit("no", "j", Commit(())),
        lambda: transactions.abort("no", "j"),
    ):
        with pytest.raises(StreamNotFound, match="no stream 'no'"):
            call()


def test_a_part_in_no_order_is_one_run(served: Served) -> None:
    batches = [batch_of([(t, n) for t in (5, 1, 9, 3)]) for n in range(50)]
    assert served.transactions.put("s", "j", "0", iter(batches))["rows"] == 200
    served.commit("0")
    assert served.events() == [(t, n) for t in (1, 3, 5, 9) for n in range(50)]
    state = served.store.stream("s").snapshot().state
    assert (len(state.segments), len(state.runs)) == (1, 0)


def test_many_tasks_stage_side_by_side(served: Served) -> None:
    def work(number: int) -> None:
        served.put(f"{number}-0", [(number * 10 + k, number) for k in range(10)])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert served.commit(*(f"{number}-0" for number in range(8))).appended == 80
    assert [t for t, _ in served.events()] == list(range(80))


def test_a_commit_finds_the_segments_of_its_parts_indexed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_database(tmp_path) as database:
        database.create_stream("s", SCHEMA)
        database.stream("s").append(pa.Table.from_batches([batch_of([(0, 1), (1, 2)])]))
        catalog_of(database).create_index("s", "x")
        monkeypatch.setattr(StreamIndexes, "build_next", lambda *_: False)  # nobody comes by later
        transactions = Transactions(catalog_of(database))
        handle = handle_of(database.stream("s"))
        parts = {"a": 10, "b": 2000, "dropped": 9000}
        for part, first in parts.items():
            rows = [(first + n, n % 7) for n in range(1000)]
            transactions.put("s", "j", part, iter([batch_of(rows)]))
        transactions.commit("s", "j", Commit(("b", "a")))
        state = handle.snapshot().state
        added = {view.file.segment_id for view in state.segments if view.events == 1000}
        indexes = catalog_of(database).indexes_of("s")
        assert added <= {segment for _, segment in indexes.catalogue().runs}
        assert len(added) == 2
        assert indexes.verify(state) == []
        text = (
            "SELECT f FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES FIRST(t) AS f "
            "PATTERN (A B) WITHIN 1 DEFINE A AS x = 2, B AS x = 3)"
        )
        found = sorted(first for (first,) in database.sql(text).fetchall())
        every = [first + n for first in (10, 2000) for n in range(999) if n % 7 == 2]
        assert found == every
