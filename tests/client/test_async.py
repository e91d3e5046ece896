"""``chronicle.aconnect``: the same without blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import chronicle
from chronicle.tests.patience import PATIENCE_S

from .conftest import FLIGHTS
from .test_connect import COUNT, EVENTS, event

Doing = Callable[[Any], Awaitable[None]]


def run(url: str, doing: Doing, **how: Any) -> None:
    async def connected() -> None:
        async with chronicle.aconnect(url, **how) as database:
            await asyncio.wait_for(doing(database), PATIENCE_S)

    asyncio.run(connected())


def test_methods_are_awaited_and_give_objects_for_asyncio(served: Any) -> None:
    async def doing(db: Any) -> None:
        flights = await db.create_stream("flights", FLIGHTS, time="time")
        done = await flights.append(EVENTS)
        assert (done.appended, done.late, done.count, done.version) == (COUNT, 0, COUNT, 1)
        assert (await db.stream("flights")).schema == flights.schema
        assert await flights.count() == COUNT
        assert await flights.time_range() == (EVENTS[0]["time"], EVENTS[-1]["time"])
        rows = await flights.scan(filter="seen > 0", limit=5)
        assert [batch.to_pylist() async for batch in rows] == [EVENTS[:5]]
        result = await db.sql("SELECT icao24, count(*) AS n FROM flights GROUP BY 1 ORDER BY 1")
        assert (await result.arrow()).num_rows == len(await result.df()) == 7
        assert (await result.pl()).height == len(await result.fetchall()) == 7
        assert await result.fetchone() == ("a0", 15)
        assert await anext(aiter(result)) == ("a0", 15)
        assert "HashGroupBy" in str(await result.plan())
        async with await db.sql("SELECT seen FROM flights WHERE seen > ?", [0]) as whole:
            assert sum([len(b) async for b in whole.batches()]) == COUNT
        with pytest.raises(chronicle.SqlError) as raised:
            await db.sql("SELECT altitud FROM flights")
        assert raised.value.column == 8
        query = await db.create_live("high", "SELECT time, seen FROM flights", idle="0 seconds")
        await db.run_live(timeout=PATIENCE_S)
        assert sum([len(batch) async for batch in query.rows()]) == COUNT
        assert (await (await db.live("high")).status())["rows"] == COUNT
        job = await db.start_job("check")
        assert (await job.wait(PATIENCE_S))["ok"]

    run(served.url, doing)


def test_a_tail_and_the_loop_goes_on(served: Any) -> None:
    async def doing(db: Any) -> None:
        flights = await db.create_stream("flights", FLIGHTS, time="time")
        found: list[int] = []
        started = asyncio.Event()

        async def follow() -> None:
            async with flights.tail(columns=["seen"]) as tail:
                started.set()
                async for batch in tail:
                    found.extend(batch.column("seen").to_pylist())

        following = asyncio.create_task(follow())
        await started.wait()
        served.app.state.server.running.cancel_all()  # as when the connection is lost
        for number in range(3):
            await flights.append([event(number)])
        while len(found) < 3:
            await asyncio.sleep(0.01)
        assert found == [EVENTS[number]["seen"] for number in range(3)]
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
        ended = flights.tail(0, follow=False)
        assert sum([len(batch) async for batch in ended]) == 3
        assert ended.position == "3"

    run(served.url, doing)


def test_a_cancelled_task_ends_its_query(served: Any) -> None:
    running = served.app.state.server.running

    async def doing(db: Any) -> None:
        result = await db.sql("SELECT a.range AS x FROM range(1000000) a, range(1000) b")
        task = asyncio.create_task(result.arrow())
        await asyncio.sleep(0.1)
        assert len(running) == 1
        task.cancel()
        while len(running):
            await asyncio.sleep(0.01)
        counting = "SELECT count(*) FROM range(1000000) a, range(1000000) b"  # no answer yet
        task = asyncio.create_task(db.sql(counting))
        while not len(running):
            await asyncio.sleep(0.01)
        task.cancel()
        while len(running):
            await asyncio.sleep(0.01)
        assert await db.streams() == []

    run(served.url, doing)


def test_waiting_tails_leave_other_calls_alone(served: Any) -> None:
    async def doing(db: Any) -> None:
        flights = await db.create_stream("flights", FLIGHTS, time="time")
        tails = [flights.tail() for _ in range(40)]
        for tail in tails:
            await tail.__aenter__()
        waiting = [asyncio.create_task(anext(tail)) for tail in tails]
        await flights.append([event(0)])
        assert [len(batch) for batch in await asyncio.gather(*waiting)] == [1] * 40
        again = asyncio.create_task(anext(tails[0]))
        await asyncio.sleep(0.05)
        again.cancel()
        await flights.append([event(1)])
        assert (await anext(tails[0])).column("seen").to_pylist() == [event(1)["seen"]]
        for tail in tails:
            await tail.close()

    run(served.url, doing)


def test_many_requests_at_once(served: Any) -> None:
    async def doing(db: Any) -> None:
        answers = await asyncio.gather(*(db.sql(f"SELECT {number}") for number in range(20)))
        assert [await answer.fetchone() for answer in answers] == [(n,) for n in range(20)]

    run(served.url, doing)


def test_it_can_be_awaited(served: Any) -> None:
    async def doing() -> None:
        database = await chronicle.aconnect(served.url)
        assert await database.streams() == []
        await database.close()
        with pytest.raises(chronicle.StoreClosed):
            await database.streams()

    asyncio.run(doing())
