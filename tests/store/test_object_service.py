"""Segments in an S3-compatible service that really runs: moto's server, which is also stopped."""

from __future__ import annotations

import http.client
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import chronicle
from chronicle.errors import StorageFailed
from chronicle.store import object_store as module
from chronicle.store.cold_file import cache
from chronicle.store.object_store import ObjectStore
from chronicle.store.restoring import restore_store

from .test_cold_segments import answers, flights, one  # noqa: F401

moto = pytest.importorskip("moto.server", reason="moto[server] is not installed")


class Service:
    """A server with one bucket."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
        self.server.start()
        host, port = self.server.get_host_and_port()
        connection = http.client.HTTPConnection(host, port)
        connection.request("PUT", "/events", headers={"Host": f"{host}:{port}"})
        assert connection.getresponse().status == 200
        connection.close()
        self.url = f"s3://events/store?endpoint_override={host}:{port}&scheme=http&region=us-east-1"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(module, "ANSWER_SECONDS", 2.0)
    monkeypatch.setattr(module, "ATTEMPTS", 2)
    running = Service()
    yield running
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
    """What is at home is answered; the rest is told within the limits of time."""
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
