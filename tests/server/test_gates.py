"""Places, queues, budgets."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from chronicle.errors import ResourceLimit
from chronicle.server.access.limits import ByteBudget, Gate
from chronicle.server.http.replies import Problem
from chronicle.tests.patience import PATIENCE_S


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


async def code_of(awaitable: Any) -> tuple[str, int, str]:
    with pytest.raises(Problem) as caught:
        await awaitable
    problem = caught.value
    return problem.code, problem.status, problem.headers["Retry-After"]


def test_places_are_given_in_turn() -> None:
    async def main() -> None:
        gate = Gate("queries", 2, 10, PATIENCE_S)
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
        gate = Gate("queries", 4, 10, PATIENCE_S, client_max=4)
        held = [await gate.enter("a") for _ in range(3)]
        fourth = asyncio.create_task(gate.enter("a"))
        await asyncio.sleep(0)
        assert (gate.running, gate.waiting) == (3, 1), "a fourth of the places is for others"
        assert await code_of(gate.enter("a")) == ("too-many-requests", 429, "1")
        (await gate.enter("b")).release()
        held.pop().release()
        (await fourth).release()
        for place in held:
            place.release()
        (await gate.enter("a")).release()
        assert (gate.running, gate.waiting) == (0, 0)

    run(main())


def test_clients_take_turns() -> None:
    async def main() -> None:
        gate = Gate("queries", 2, 100, PATIENCE_S)
        first, second = await gate.enter("a"), await gate.enter("b")
        order: list[str] = []

        async def wait(client: str) -> None:
            place = await gate.enter(client)
            order.append(client)
            await asyncio.sleep(0)
            place.release()

        tasks = [asyncio.create_task(wait(client)) for client in "aaaaaaaabbc"]
        await asyncio.sleep(0)
        first.release()
        second.release()
        await asyncio.gather(*tasks)
        assert {"a", "b", "c"} == set(order[:4]), order
        assert order.index("c") < 4
        assert gate.running == 0

    run(main())


def test_in_a_full_queue_who_waits_with_most_makes_room() -> None:
    async def main() -> None:
        gate = Gate("queries", 1, 4, PATIENCE_S)
        place = await gate.enter("x")
        greedy = [asyncio.create_task(gate.enter("a")) for _ in range(4)]
        await asyncio.sleep(0)
        assert await code_of(gate.enter("a")) == ("overloaded", 503, "1")
        modest = asyncio.create_task(gate.enter("b"))
        assert await code_of(greedy.pop()) == ("overloaded", 503, "1")
        assert gate.waiting == 4
        second = asyncio.create_task(gate.enter("b"))
        assert await code_of(greedy.pop()) == ("overloaded", 503, "1")
        assert await code_of(gate.enter("b")) == ("overloaded", 503, "1"), "they wait with as many"
        place.release()
        for task in (greedy[0], modest, greedy[1], second):
            (await asyncio.wait_for(task, PATIENCE_S)).release()
        assert (gate.running, gate.waiting) == (0, 0)

    run(main())


def test_who_gives_up_waiting_loses_no_place() -> None:
    async def main() -> None:
        for moment in range(4):  # before, while and after the place changes hands
            gate = Gate("queries", 1, 10, PATIENCE_S)
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
            (await asyncio.wait_for(gate.enter("c"), PATIENCE_S)).release()

    run(main())


def test_budgets_are_given_back() -> None:
    budget = ByteBudget(100)
    with budget.account("a") as one:
        one.hold(60)
        with budget.account("b") as two:
            two.hold(40)
            with pytest.raises(Problem) as caught:
                two.hold(1)
            assert (caught.value.status, caught.value.headers["Retry-After"]) == (503, "1")
        assert budget.used == 60
        with pytest.raises(ResourceLimit, match="75"):
            one.hold(16)  # would not fit if it were alone either
    assert budget.used == 0


def test_one_client_leaves_bytes_to_others() -> None:
    budget = ByteBudget(100)
    with budget.account("a") as one, budget.account("a") as two, budget.account("b") as other:
        one.hold(50)
        with pytest.raises(Problem, match="this client"):
            two.hold(26)
        other.hold(26)
        two.hold(24)
    assert budget.used == 0
