"""Places, queues, budgets."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from chronicle.errors import ResourceLimit
from chronicle.server.limits import ByteBudget, Gate
from chronicle.server.problems import Problem


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


async def code_of(awaitable: Any) -> tuple[str, int, str]:
    with pytest.raises(Problem) as caught:
        await awaitable
    problem = caught.value
    return problem.code, problem.status, problem.headers["Retry-After"]


def test_places_are_given_in_turn() -> None:
    async def main() -> None:
        gate = Gate("queries", 2, 10, 5.0)
        first, _second = await gate.enter("a"), await gate.enter("b")
        order: list[int] = []

        async def wait(number: int) -> None:
            place = await gate.enter(f"c{number}")
            order.append(number)
            place.release()

        tasks = []
        for number in range(5):
            tasks.append(asyncio.create_task(wait(number)))
            await asyncio.sleep(0)
        assert (gate.running, gate.waiting) == (2, 5)
        first.release()
        first.release()  # the second time does nothing
        await asyncio.gather(*tasks)
        assert order == [0, 1, 2, 3, 4]
        assert (gate.running, gate.waiting) == (1, 0)

    run(main())


def test_a_full_queue_turns_away_at_once_and_a_slow_one_after_a_while() -> None:
    async def main() -> None:
        gate = Gate("queries", 1, 1, 0.02)
        place = await gate.enter("a")
        waiting = asyncio.create_task(code_of(gate.enter("b")))
        await asyncio.sleep(0)
        assert await code_of(gate.enter("c")) == ("overloaded", 503, "1")
        assert await waiting == ("overloaded", 503, "1")
        place.release()
        assert (gate.running, gate.waiting) == (0, 0)
        (await gate.enter("b")).release()

    run(main())


def test_one_client_cannot_take_everything() -> None:
    async def main() -> None:
        gate = Gate("queries", 2, 10, 1.0, client_max=3)
        held = [await gate.enter("a"), await gate.enter("a")]
        third = asyncio.create_task(gate.enter("a"))
        await asyncio.sleep(0)
        assert await code_of(gate.enter("a")) == ("too-many-requests", 429, "1")
        other = asyncio.create_task(gate.enter("b"))
        await asyncio.sleep(0)
        held.pop().release()
        (await third).release()
        (await other).release()
        held.pop().release()
        (await gate.enter("a")).release()
        assert gate.running == 0

    run(main())


def test_who_gives_up_waiting_loses_no_place() -> None:
    async def main() -> None:
        for moment in range(4):  # before, while and after the place changes hands
            gate = Gate("queries", 1, 10, 5.0)
            place = await gate.enter("a")
            waiting = asyncio.create_task(gate.enter("b"))
            await asyncio.sleep(0)
            if moment >= 1:
                place.release()
            for _ in range(max(0, moment - 1)):
                await asyncio.sleep(0)
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                (await waiting).release()
            place.release()
            assert (gate.running, gate.waiting) == (0, 0), moment
            (await asyncio.wait_for(gate.enter("c"), 1)).release()

    run(main())


def test_budgets_are_given_back() -> None:
    budget = ByteBudget(100)
    with budget.account() as one:
        one.hold(60)
        with budget.account() as two:
            two.hold(40)
            with pytest.raises(Problem) as caught:
                two.hold(1)
            assert (caught.value.status, caught.value.headers["Retry-After"]) == (503, "1")
        assert budget.used == 60
        with pytest.raises(ResourceLimit, match="100"):
            one.hold(41)  # would not fit if it were alone either
    assert budget.used == 0
