"""Segments in an S3-compatible service that really runs: moto's server, stopped and held up."""

from __future__ import annotations

import http.client
import itertools
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.errors import StorageFailed
from chronicle.store import object_store as module
from chronicle.store.backup import object_backups, restore_backup, restore_store, verify_backup
from chronicle.store.cold_file import cache
from chronicle.store.object_store import ObjectStore
from chronicle.tests.patience import PATIENCE_S, wait_until

from .slow_proxy import SlowProxy
from .test_cold_segments import answers, flights, one, stored_flights  # noqa: F401
from .test_tiering import quick  # noqa: F401

moto = pytest.importorskip("moto.server", reason="moto[server] is not installed")


class Service:
    """A server with one bucket."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
        self.server.start()
        host, port = self.server.get_host_and_port()
        connection = http.client.HTTPConnection(host, port)
        for method, path in (("POST", "/moto-api/reset"), ("PUT", "/events")):
            connection.request(method, path, headers={"Host": f"{host}:{port}"})
            answer = connection.getresponse()
            assert answer.status == 200
            answer.read()
        connection.close()
        self.proxy = SlowProxy(host, port)
        self.url = self.at(f"{host}:{port}")
        self.slow_url = self.at(self.proxy.address)

    @staticmethod
    def at(address: str) -> str:
        return f"s3://events/store?endpoint_override={address}&scheme=http&region=us-east-1"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(module, "CONNECT_SECONDS", 3600.0)
    monkeypatch.setattr(module, "ANSWER_SECONDS", 3600.0)
    monkeypatch.setattr(module, "ATTEMPTS", 2)
    running = Service()
    yield running
    running.proxy.close()
    running.server.stop()


def test_objects(service: Service) -> None:
    objects = ObjectStore(service.url)
    assert objects.list("") == []
    objects.put("a/b", [b"hel", b"lo"])
    objects.put("a/c/d", [bytes(9_000_000)])
    assert objects.read("a/b", 1, 3) == b"ell"
    assert objects.size("a/b") == 5
    assert objects.size("a") is None
    assert objects.list("") == ["a/b", "a/c/d"]
    assert objects.list("a/c/") == ["a/c/d"]
    objects.put("a/b", [b"anew"])
    assert objects.read("a/b", 0, 4) == b"anew"
    with pytest.raises(StorageFailed, match="ends at byte 4"):
        objects.read("a/b", 2, 9)
    for _ in range(2):
        objects.remove("a/b")
    with pytest.raises(StorageFailed, match="s3://events/store/a/b"):
        objects.read("a/b", 0, 1)


def test_a_store_over_a_service(
    service: Service,
    flights: chronicle.Database,  # noqa: F811
    tmp_path: Path,
) -> None:
    wanted = answers(flights)
    flights.stream("s").seal()
    moved = flights.move(service.url)["s"]
    flights.close()
    with chronicle.open(tmp_path / "store") as database:
        before = cache.fetched
        assert answers(database) == wanted
        assert 0 < cache.fetched - before <= moved.bytes
        database.stream("s").delete("x < 5000")
        database.stream("s").compact()
        database.move(service.url)
        wanted = answers(database)
    restore_store(ObjectStore(service.url), tmp_path / "again")
    with chronicle.open(tmp_path / "again") as database:
        assert answers(database) == wanted


def test_a_service_that_is_away(
    service: Service,
    flights: chronicle.Database,  # noqa: F811
    tmp_path: Path,
) -> None:
    """What is at home is answered; the rest is an error."""
    wanted = answers(flights)
    flights.move(service.url)
    flights.close()
    with chronicle.open(tmp_path / "store") as database:
        service.server.stop()
        assert database.sql("SELECT count(*), max(x) FROM s").fetchall()
        with pytest.raises(StorageFailed, match="try again"):
            database.sql("SELECT sum(x) FROM s WHERE y > 0.5").fetchall()
        database.stream("s").append(one(2 * 10**15, 1))
        assert database.stream("s").count == wanted["all"]["count_star()"][0].as_py() + 1


def test_what_is_due_moves_though_the_service_comes_and_goes(
    service: Service,
    flights: chronicle.Database,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Held up, then away in the middle of a request, then back: all moves, nothing is lost."""
    put, puts = ObjectStore.put, itertools.count()

    def held_up(self: ObjectStore, key: str, parts: Iterable[bytes]) -> None:
        if next(puts) == 4:  # two segments and their stubs are there
            service.proxy.go_on.clear()
        put(self, key, parts)

    monkeypatch.setattr(ObjectStore, "put", held_up)
    wanted = answers(flights)
    flights.stream("s").seal()
    flights.close()
    with chronicle.open(tmp_path / "store", objects=service.slow_url) as database:
        stream = database.stream("s")
        stream.set_options(keep_local_bytes=0)
        assert service.proxy.holds.wait(PATIENCE_S)
        assert stream.stats()["moved_segments"] > 0
        try:  # none of this waits for the service
            stream.append(one(2 * 10**15, 1))
            found = database.sql("SELECT count(*), max(x) FROM s").fetchall()
            assert found[0][0] == wanted["all"]["count_star()"][0].as_py() + 1
            stream.delete("x = 1", "2030-01-01")
        finally:
            service.proxy.down = True
            service.proxy.go_on.set()
        wait_until(lambda: catalog_of(database).store.moving()["state"] == "failing")  # type: ignore[index]
        assert stream.stats()["due_segments"] > 0
        service.proxy.down = False
        wait_until(lambda: stream.stats()["due_segments"] == 0)
        wait_until(lambda: catalog_of(database).store.moving()["state"] == "waiting")  # type: ignore[index]
        assert answers(database) == wanted
        assert database.check().ok
        cold = stream.stats()["cold_segments"]
    keys = ObjectStore(service.url).list("")
    assert len([key for key in keys if key.endswith(".seg")]) == cold, keys  # nothing cut is left
    restore_store(ObjectStore(service.url), tmp_path / "again")
    with chronicle.open(tmp_path / "again") as database:
        assert answers(database) == wanted


def test_a_backup_in_a_service(
    flights: chronicle.Database,  # noqa: F811
    service: Service,
    tmp_path: Path,
) -> None:
    """Whole, with segments that had moved to the service; unfinished when that goes away."""
    expected = answers(flights)
    flights.move(service.url)
    flights.backup(service.url, name="monday")
    objects = ObjectStore(service.url)
    (found,) = object_backups(objects)
    assert (found.state, found.streams) == ("whole", {"s": 60_000})
    assert verify_backup(objects, "monday") == []
    put = ObjectStore.put

    def last(self: ObjectStore, key: str, parts: Iterable[bytes]) -> None:
        if key.endswith(".backup"):
            service.proxy.down = True
        put(self, key, parts)

    flights.stream("s").append(one(2 * 10**15, 1))
    slow = service.slow_url
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectStore, "put", last)
        with pytest.raises(StorageFailed, match="try again when"):
            flights.backup(slow, name="tuesday")
    assert {each.name: each.state for each in object_backups(objects)} == {
        "monday": "whole",
        "tuesday": "unfinished",
    }
    restore_backup(objects, tmp_path / "again")
    with chronicle.open(tmp_path / "again") as again:
        assert answers(again) == expected
        assert again.check().ok
