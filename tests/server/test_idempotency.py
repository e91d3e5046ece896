"""Keys: what a repeated request gets, also after a crash at any moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from chronicle.errors import InvalidArgument, InvalidData
from chronicle.server.idempotency import IdempotencyKeys
from chronicle.server.problems import Problem

ANSWER = {"appended": 3, "late": 0, "count": 3}


class Store:
    """A stream whose version grows with each append, and a clock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.version = 7
        self.now = 1_000_000.0
        self.appends = 0
        path.mkdir()

    def open(self) -> IdempotencyKeys:
        return IdempotencyKeys(
            self.path, 24 * 3600, lambda name: self.version, clock=lambda: self.now
        )

    def append(self, keys: IdempotencyKeys, key: str = "k", said: str = "p") -> tuple[Any, bool]:
        with keys.request("s", key, said) as work:
            if not work.replayed:
                self.appends += 1
                self.version += 1
                work.answer = dict(ANSWER)
        return work.answer, work.replayed


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(Problem) as caught:
        call()
    return caught.value.code


def test_the_same_request_is_answered_again_without_work(store: Store) -> None:
    keys = store.open()
    assert store.append(keys) == (ANSWER, False)
    assert store.append(keys) == (ANSWER, True)
    assert store.append(keys, key="other") == (ANSWER, False)
    assert store.appends == 2


def test_answers_outlive_the_server(store: Store) -> None:
    store.append(store.open())
    for _ in range(3):
        assert store.append(store.open()) == (ANSWER, True)
    assert store.appends == 1


def test_another_request_under_the_key_is_refused(store: Store) -> None:
    keys = store.open()
    store.append(keys)
    assert code_of(lambda: store.append(keys, said="other")) == "idempotency-mismatch"
    assert code_of(lambda: store.append(store.open(), said="other")) == "idempotency-mismatch"


def test_a_request_that_runs_is_not_run_beside_itself(store: Store) -> None:
    keys = store.open()
    with keys.request("s", "k", "p") as work:
        assert code_of(lambda: store.append(keys)) == "idempotency-in-flight"
        work.answer = dict(ANSWER)
    assert store.append(keys) == (ANSWER, True)


@pytest.mark.parametrize("error", [InvalidData("bad row"), Problem("overloaded", 503, "busy")])
def test_a_failed_request_may_be_sent_again(store: Store, error: Exception) -> None:
    keys = store.open()

    def fail() -> None:
        with keys.request("s", "k", "p"):
            raise error

    with pytest.raises(type(error)):
        fail()
    assert store.append(keys, said="mended") == (ANSWER, False)
    assert store.append(store.open(), said="mended") == (ANSWER, True)


def test_keys_belong_to_a_stream(store: Store) -> None:
    keys = store.open()
    for stream in ("s", "t"):
        with keys.request(stream, "k", "p") as work:
            assert not work.replayed
            work.answer = dict(ANSWER)
    keys.forget_stream("s")
    assert store.append(keys) == (ANSWER, False)
    with store.open().request("t", "k", "p") as work:
        assert work.replayed


def test_keys_are_forgotten_after_their_time_and_not_before(store: Store) -> None:
    keys = store.open()
    store.append(keys)
    store.now += 24 * 3600 - 1
    assert store.append(keys) == (ANSWER, True)
    keys = store.open()
    assert store.append(keys) == (ANSWER, True)
    store.now += 2
    assert store.append(keys) == (ANSWER, False)
    assert len(store.open()) == 1


def attempt(store: Store, keys: IdempotencyKeys, key: str) -> tuple[str, Any, bool]:
    """The code that a request was refused with, or its answer."""
    try:
        answer, replayed = store.append(keys, key=key)
    except Problem as problem:
        return problem.code, None, False
    return "", answer, replayed


def log_of(store: Store) -> Path:
    return store.path / "server" / "idempotency.log"


def crash_in_the_middle(store: Store, *, appended: bool) -> None:
    """Leave what a process leaves that is killed before it could log the end."""
    keys = store.open()
    work = keys.request("s", "k", "p")
    work.__enter__()
    if appended:
        store.version += 1


def test_a_crash_before_the_append_frees_the_key(store: Store) -> None:
    crash_in_the_middle(store, appended=False)
    assert store.append(store.open()) == (ANSWER, False)


def test_a_crash_after_the_append_is_not_guessed_about(store: Store) -> None:
    crash_in_the_middle(store, appended=True)
    keys = store.open()
    assert code_of(lambda: store.append(keys)) == "idempotency-in-doubt"
    assert code_of(lambda: store.append(store.open())) == "idempotency-in-doubt"
    assert store.appends == 0


def test_an_unexpected_error_leaves_the_key_in_doubt(store: Store) -> None:
    keys = store.open()

    def fail() -> None:
        with keys.request("s", "k", "p"):
            raise MemoryError

    with pytest.raises(MemoryError):
        fail()
    assert code_of(lambda: store.append(keys)) == "idempotency-in-doubt"


def test_every_cut_of_the_log_is_survived(store: Store) -> None:
    keys = store.open()
    for number in range(4):
        store.append(keys, key=f"k{number}")
    whole = log_of(store).read_bytes()
    for cut in range(0, len(whole), 7):
        log_of(store).write_bytes(whole[:cut])
        keys = store.open()
        before = store.appends
        for number in range(4):
            refused, answer, replayed = attempt(store, keys, f"k{number}")
            if refused:
                assert refused == "idempotency-in-doubt"
                continue
            assert answer == ANSWER
            known = f'"key":"s\\nk{number}","answer"'.encode() in whole[:cut].rpartition(b"\n")[0]
            assert replayed or not known, "an answer on disk was lost"
        log_of(store).write_bytes(whole)
        store.appends = before


def test_the_log_is_readable_by_its_owner_only_and_begun_before_the_work(store: Store) -> None:
    keys = store.open()
    with keys.request("s", "k", "p") as work:
        line = orjson.loads(log_of(store).read_bytes())
        assert line == {
            "op": "begin", "key": "s\nk", "at": store.now, "print": "p", "version": 7,
        }  # fmt: skip
        work.answer = dict(ANSWER)
    assert log_of(store).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("key", ["", "a" * 256, "tab\there", "line\nbreak"])
def test_keys_that_are_none(store: Store, key: str) -> None:
    with pytest.raises(InvalidArgument, match="Idempotency-Key"):
        store.append(store.open(), key=key)


def test_many_threads_with_the_same_keys_append_once_each(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chronicle.server.idempotency.REWRITE_LINES_MIN", 8)
    keys = store.open()
    done: list[tuple[int, bool]] = []

    def work(thread: int) -> None:
        for number in range(25):
            refused, _, replayed = attempt(store, keys, f"k{number}")
            while refused == "idempotency-in-flight":
                refused, _, replayed = attempt(store, keys, f"k{number}")
            if not refused:
                done.append((number, replayed))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for number, replayed in done if not replayed) == list(range(25))
    assert len(done) == 200
    again = store.open()
    assert all(store.append(again, key=f"k{number}")[1] for number in range(25))
