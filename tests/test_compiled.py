"""The cache of compiled kernels, where several processes use it at once."""

from __future__ import annotations

import fcntl
import os
import threading

import pytest

from chronicle import compiled


def test_one_process_at_a_time_looks_into_the_cache() -> None:
    asked = threading.Event()
    found = []
    look = compiled._in_turn(lambda cache, key: found.append(key))

    def ask() -> None:
        asked.set()
        look(None, "key")

    other = threading.Thread(target=ask)
    lock = os.open(compiled.cache_directory() / "lock", os.O_RDONLY | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        other.start()
        assert asked.wait(30)
        other.join(0.2)
        assert not found
    finally:
        os.close(lock)
    other.join(30)
    assert found == ["key"]


def test_what_cannot_be_written_is_read_without_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    look = compiled._in_turn(lambda cache, key: key)
    monkeypatch.setenv("CHRONICLE_CACHE_DIR", "/dev/null/nowhere")
    assert look(None, "key") == "key"
