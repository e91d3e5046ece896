"""A small database that does what a test tells it to, and clients for applications around it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.errors import QueryTimeout, ReadOnlyStore, StreamNotFound
from chronicle.formats.isolated import IsolatedReader
from chronicle.query.contract.access import Access
from chronicle.query.contract.cancellation import QueryControl
from chronicle.query.engine import QueryEngine
from chronicle.schema import StreamSchema
from chronicle.server.access.settings import Settings
from chronicle.server.app import create_app
from chronicle.server.run import Listening, uvicorn_config
from chronicle.store.catalog import write_manifest
from chronicle.store.files import RealFiles
from chronicle.tests.patience import PATIENCE_S

from .console_page import REQUIRED, SWITCHES, Console, chromium
from .flights import SPEC

SCHEMA = pa.schema([pa.field("n", pa.int64()), pa.field("s", pa.string())])
HOUR_MS = 3_600_000
"""A limit that no test sees the end of: what does not end for another reason hangs."""
PATIENT = dict.fromkeys(
    ("query_timeout_ms", "queue_timeout_ms", "client_timeout_ms", "header_timeout_ms"), HOUR_MS
)
"""Limits of time that a slow machine could meet; a test that is about one sets its own."""


@pytest.fixture(scope="session", autouse=True)
def readers() -> Iterator[None]:
    """Workers that read bodies, shared by the servers of all tests of a run."""
    reader = IsolatedReader(Settings.model_fields["body_memory_bytes"].default)
    yield
    reader.close()


class Client:
    """Requests to an application, from any thread, without a network."""

    def __init__(self, app: Any, address: str) -> None:
        self.app = app
        self.loop = asyncio.new_event_loop()
        self._ahead_s, now = 0.0, self.loop.time
        self.loop.time = lambda: now() + self._ahead_s  # type: ignore[method-assign]
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self._transport = httpx.ASGITransport(
            app, raise_app_exceptions=False, client=(address, 4711)
        )
        self._lifespan = app.router.lifespan_context(app)
        self.run(self._lifespan.__aenter__())

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine where the application runs."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE_S)

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(
                transport=self._transport, base_url="http://127.0.0.1", timeout=PATIENCE_S
            ) as client:
                return await client.request(method, path, **more)

        response: httpx.Response = self.run(ask())
        return response

    def pass_time(self, seconds: float) -> None:
        """Put the loop's clock forward: what was to happen within that time happens now."""
        self._ahead_s += seconds
        self.loop.call_soon_threadsafe(lambda: None)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.request("POST", path, **more)

    def put(self, path: str, **more: Any) -> httpx.Response:
        return self.request("PUT", path, **more)

    def delete(self, path: str, **more: Any) -> httpx.Response:
        return self.request("DELETE", path, **more)

    def close(self) -> None:
        try:
            self.run(self._lifespan.__aexit__(None, None, None))
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()


class FakeResult:
    """Rows that come when the test wants them."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.schema = schema
        self._batches = batches
        self.closed = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self._batches

    def arrow(self) -> pa.Table:
        return pa.Table.from_batches(list(self._batches), schema=self.schema)

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> FakeResult:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FakeSnapshot:
    """A version."""

    def __init__(self, version: int) -> None:
        self.version = version


class FakeDatabase:
    """Answers the SQL texts that it was taught; knows streams by name only.

    A text maps to an exception (raised), or to a function that takes a QueryControl and yields
    batches of SCHEMA; ``SELECT 1`` gives one row.
    """

    mode = "rw"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: list[str] = ["flights", "secret"]
        self.taught: dict[str, Exception | Callable[[QueryControl], Iterator[pa.RecordBatch]]] = {}
        self.results: list[FakeResult] = []
        self.read_only: list[bool] = []
        self.version = 1
        self.schema_of: dict[str, pa.Schema] = {}
        self._catalog = self
        self.store = SimpleNamespace(moving=lambda: None)
        self.engine = FakeEngine(self)

    def serve_only_streams(self) -> None:
        """There is nothing else."""

    def streams(self) -> list[str]:
        return sorted(self.names)

    def damaged(self) -> dict[str, str]:
        return {}

    def stream(self, name: str) -> Any:
        if name not in self.names:
            raise StreamNotFound(f"no stream {name!r}")
        index = {"attribute": "n", "lag_events": 1, "runs": 1, "bytes": 9}
        index |= {"covered": 0.5, "usable": 1}
        return SimpleNamespace(
            name=name,
            stats=lambda: {"events": 3, "bytes": 10},
            indexes=lambda: [index],
        )

    def handle(self, name: str) -> None:
        self.stream(name)

    def writer(self, name: str, what: str) -> Any:
        self.stream(name)
        raise ReadOnlyStore(f"cannot {what} {name!r}: it is no stream of a store")

    def stream_options(self, name: str) -> dict[str, Any]:
        return {"codec": "lz4"}

    def live_queries(self) -> list[str]:
        return ["alerts"]

    def live(self, name: str) -> Any:
        return SimpleNamespace(status=lambda: {"state": "running", "lag_ms": 5.0, "rows": 1})

    @property
    def live_statements(self) -> Any:
        return SimpleNamespace(figures=lambda name: {"steps": 1.0, "step_seconds": 0.5})

    def snapshot(self, name: str) -> Any:
        self.stream(name)
        return FakeSnapshot(self.version)

    def drop_stream(self, name: str) -> None:
        self.stream(name)
        self.names.remove(name)

    def close(self) -> None:
        pass


class FakeEngine:
    """What runs the SQL of a FakeDatabase, as one caller sees it."""

    def __init__(
        self, database: FakeDatabase, visible: Callable[[str], bool] | None = None
    ) -> None:
        self._database = database
        self._visible = visible

    def seen_by(self, visible: Callable[[str], bool] | None, tell: Any = None) -> FakeEngine:
        return FakeEngine(self._database, visible)

    @property
    def executor(self) -> Any:
        """SQL is served unless ``SELECT 1`` was taught to be an error."""
        ask = lambda seconds: bool(self.run("SELECT 1", timeout=seconds))  # noqa: E731
        return SimpleNamespace(serves=ask)

    def run(
        self,
        text: str,
        params: Any = None,
        timeout: float | None = None,
        *,
        read_only: bool = False,
        cancellation: Any = None,
        allowed: Any = None,
    ) -> FakeResult:
        if allowed is not None:
            allowed(self.access(text))
        database = self._database
        database.read_only.append(read_only)
        told = database.taught.get(text, rows(1))
        if isinstance(told, Exception):
            raise told
        result = FakeResult(
            database.schema_of.get(text, SCHEMA), told(QueryControl(timeout, cancellation))
        )
        database.results.append(result)
        return result

    def access(self, text: str) -> Access:
        """What the real binder says, over streams with one attribute, ``n``."""
        if text in self._database.taught:
            return Access("Select", "read")
        catalog = FakeCatalog(self._database)
        engine = QueryEngine(catalog, memory_bytes=1, threads=1)  # type: ignore[arg-type]
        return engine.seen_by(self._visible).access(text)


class FakeCatalog:
    """The streams of a FakeDatabase, as the binder asks for them."""

    def __init__(self, database: FakeDatabase) -> None:
        self.streams = database.streams
        self.frames: dict[str, Any] = {}

    def views(self) -> dict[str, Any]:
        return {}

    def stream_schema(self, name: str) -> StreamSchema:
        if name not in self.streams():
            raise StreamNotFound(f"there is no stream {name!r}")
        return StreamSchema(pa.schema([("n", pa.int64())]), "n")


def rows(count: int, batch: int = 1000) -> Callable[[QueryControl], Iterator[pa.RecordBatch]]:
    """A result of so many rows."""

    def give(control: QueryControl) -> Iterator[pa.RecordBatch]:
        for start in range(0, count, batch):
            control.check()
            numbers = list(range(start, min(count, start + batch)))
            yield pa.record_batch([pa.array(numbers), pa.array([f"s{n}" for n in numbers])], SCHEMA)

    return give


def endless(control: QueryControl) -> Iterator[pa.RecordBatch]:
    """Rows without end, until the query is ended."""
    number = 0
    while True:
        control.check()
        numbers = list(range(number, number + 5000))
        number += 5000
        yield pa.record_batch([pa.array(numbers), pa.array([f"s{n}" for n in numbers])], SCHEMA)


def stuck(control: QueryControl) -> Iterator[pa.RecordBatch]:
    """Nothing, until the query is ended."""
    while True:
        control.check()
        time.sleep(0.005)
        if False:
            yield


class Held:
    """A result that comes when the test lets it."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.release = threading.Event()

    def __call__(self, control: QueryControl) -> Iterator[pa.RecordBatch]:
        self.entered.release()
        while not self.release.wait(0.005):
            control.check()
        yield from rows(1)(control)


@pytest.fixture
def fake(tmp_path: Path) -> FakeDatabase:
    """A database that is none."""
    database = FakeDatabase(tmp_path / "store")
    (database.path / "CHRONICLE").mkdir(parents=True)
    write_manifest(RealFiles(str(database.path)), "CHRONICLE", {"store": 1, "identity": "0"})
    return database


@pytest.fixture
def teach() -> SimpleNamespace:
    """What a fake database can be taught to answer."""
    return SimpleNamespace(
        rows=rows, endless=endless, stuck=stuck, held=Held, schema=SCHEMA, timeout=QueryTimeout
    )


@pytest.fixture
def serve_app() -> Iterator[Callable[..., Client]]:
    """Make a client for a database under some settings; started and stopped with the test."""
    with contextlib.ExitStack() as stack:

        def make(database: Any, *, address: str = "127.0.0.1", **settings: Any) -> Client:
            app = create_app(database, Settings(store=database.path, **PATIENT | settings))
            return stack.enter_context(contextlib.closing(Client(app, address)))

        yield make


class Live:
    """A server on a socket of its own, and connections to it."""

    def __init__(self, database: Any, settings: Settings) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.app = create_app(database, settings)
        started = threading.Event()
        drain_s = settings.drain_timeout_ms / 1000
        self._server = Listening(
            uvicorn_config(self.app, settings),
            started.set,
            lambda: self.app.state.server.drain(drain_s),
        )
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self.listener]}, daemon=True
        )
        self._thread.start()
        assert started.wait(PATIENCE_S)
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=PATIENCE_S)

    def connect(self, *, receive_bytes: int | None = None) -> socket.socket:
        """A connection; with a small buffer, one whose client does not read is soon full."""
        made = socket.socket()
        if receive_bytes is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        made.settimeout(PATIENCE_S)
        made.connect(("127.0.0.1", self.port))
        return made

    @property
    def connections(self) -> int:
        return len(self._server.server_state.connections)

    def close(self) -> None:
        self.http.close()
        self._server.should_exit = True
        self._thread.join()
        self.listener.close()


@pytest.fixture
def live() -> Iterator[Callable[..., Live]]:
    """Serve a database by Uvicorn on a loopback socket, as `chronicle serve` does."""
    with contextlib.ExitStack() as stack:

        def make(database: Any, **settings: Any) -> Live:
            more = {**PATIENT, "drain_timeout_ms": 200, **settings}
            served = Live(database, Settings(store=database.path, **more))
            return stack.enter_context(contextlib.closing(served))

        yield make


@pytest.fixture
def client(fake: FakeDatabase, serve_app: Callable[..., Client]) -> Client:
    """A client of an application around the fake database, with default settings."""
    return serve_app(fake)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Any]:
    with chronicle.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def api(database: Any, serve_app: Callable[..., Any]) -> Any:
    client = serve_app(database)
    assert client.post("/v1/streams", json=SPEC).status_code == 201
    return client


# ------------------------------------------------------------------------------ the console


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for the tests of a file: while it is there, its event loop runs in this thread,
    and tests of other files could not run one of their own.
    """
    path = chromium()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        reason = "no Chromium, or no playwright: see `make browser`"
        pytest.fail(reason) if REQUIRED else pytest.skip(reason)
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=SWITCHES)
        yield browser
        browser.close()


@pytest.fixture
def steps(database: Any) -> Any:
    """A store with a stream of steps."""
    schema = pa.schema([("t", pa.timestamp("us")), ("k", pa.string()), ("v", pa.int64())])
    n = np.arange(2000)
    keys = [f"key {i % 4}" for i in n]
    table = pa.table([pa.array(n * 1_000_000, pa.timestamp("us")), keys, n % 50], schema)
    database.create_stream("steps", schema, time="t").append(table)
    return database


@pytest.fixture
def open_console(
    database: Any, browser: Any, live: Callable[..., Any]
) -> Iterator[Callable[..., Console]]:
    """Serve the database and open its console; fails when something went wrong in the page.

    The page is closed before the server is stopped, and that before the store is closed: a page
    that is still open goes on asking, and would be told so.
    """
    opened: list[Console] = []

    def make(*, width: int = 1400, dark: bool = False, **settings: Any) -> Console:
        served = live(database, **settings)
        page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        opened.append(Console(page, f"http://127.0.0.1:{served.port}"))
        return opened[-1]

    yield make
    for console in opened:
        hacked = console.page.evaluate("window.hacked")
        console.page.close()
        assert hacked is None
        assert console.troubles == []
