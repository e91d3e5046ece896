"""Many requests at once: long statements, and workers that are killed in the middle of 200 queries.

``CHRONICLE_FUZZ`` (see :mod:`.target`) makes both long.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil

from chronicle.tests.fuzz.target import HOUR_MS, NIGHTLY, Target, seed

AT_ONCE = 200
QUERIES = 20_000 if NIGHTLY else AT_ONCE
PRODUCT = "SELECT count(*) AS v FROM s a, s b, s c, s d WHERE a.x + b.x + c.x + d.x >= 0"
WORKED_S = 0.1
"""Of a processor: what a worker has that was born, and has run something."""
STATEMENTS = 40 if NIGHTLY else 2
"""Of each client."""

SHORT = "SELECT count(*) AS v FROM w"
LONG = [
    f"SELECT {', '.join(f'x + # AS c{n}' for n in range(3000))} FROM s",
    f"SELECT t FROM s WHERE {' AND '.join(f'x > # + {n}' for n in range(3000))}",
    f"SELECT t FROM s WHERE t IN (#, {', '.join(map(str, range(8000)))})",
    "SELECT CASE WHEN x > # THEN 1" + " WHEN x > 1 THEN 1" * 3000 + " END FROM s",
    f"SELECT {', '.join(f'sum(x) AS c{n}' for n in range(2000))} FROM TUMBLE(s, t, 10) "
    "WHERE x > # GROUP BY window_start",
    "SELECT count(*) FROM s MATCH_RECOGNIZE (ORDER BY t PATTERN ((A? B?){1,300}) "
    "DEFINE A AS x > #)",
    "SELECT count(*) FROM s MATCH_RECOGNIZE (ORDER BY t PATTERN (A) DEFINE A AS "
    f"{' AND '.join(f'x > # + {n}' for n in range(2000))})",
    "SELECT x" + ".abs()" * 190 + f", {', '.join(['x'] * 8000)}, # FROM s",
]


def test_a_crowd_of_long_statements_costs_nobody_else(tmp_path: Path) -> None:
    """Short queries are answered in between; how soon is printed, and not judged."""
    with Target(tmp_path, QUEUE_TIMEOUT_MS=HOUR_MS) as target:
        statuses: Counter[int] = Counter()

        def shout(client: int) -> None:
            chance = random.Random(f"{seed()} {client}")
            for _ in range(STATEMENTS):
                sql = chance.choice(LONG).replace("#", str(chance.randrange(10**9)))
                statuses[target.query(sql).status] += 1

        with ThreadPoolExecutor(16) as clients:
            crowd = [clients.submit(shout, client) for client in range(16)]
            waits = []
            while not all(one.done() for one in crowd):
                begun = time.monotonic()
                found = target.query(SHORT, target.writer, timeout_ms=HOUR_MS)
                waits.append(time.monotonic() - begun)
                assert found.status in (400, 404), found.text  # there is no such stream
                time.sleep(0.05)
            for one in crowd:
                one.result()
        target.canaries("long statements")
    print(f"a short query in {statistics.median(waits):.3f} s, /healthz in {target.health_s:.3f}")
    assert not target.faults, "\n".join(map(str, target.faults))
    assert set(statuses) <= {200, 400, 408, 413, 429, 503, 504}, statuses


def test_a_killed_worker_costs_what_it_ran(tmp_path: Path) -> None:
    """Every fourth answer, one that has worked is killed: not one that is being born."""
    with Target(
        tmp_path, MAX_CLIENT_QUERIES=2 * AT_ONCE,
        MAX_WAITING_QUERIES=2 * AT_ONCE, QUEUE_TIMEOUT_MS=HOUR_MS,
    ) as target:  # fmt: skip
        wanted = 40**4
        over = threading.Event()
        killed: list[int] = []
        answered: list[int] = []
        chance = random.Random(seed())

        def workers() -> list[psutil.Process]:
            found = psutil.Process(target.process.pid).children(recursive=True)
            nurseries = {one.pid for one in found if "sql_worker" in " ".join(one.cmdline())}
            born = [one for one in found if one.ppid() in nurseries]
            return [one for one in born if one.cpu_times().user > WORKED_S]

        def kill() -> None:
            while not over.wait(0.02):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if len(answered) >= 4 * len(killed) and (found := workers()):
                        victim = chance.choice(found)
                        victim.kill()
                        killed.append(victim.pid)

        limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
        headers = {"Authorization": f"Bearer {target.reader}"}
        with httpx.Client(
            base_url=target.url, timeout=None, limits=limits, headers=headers
        ) as http:

            def ask(number: int) -> httpx.Response:
                reply = http.post("/v1/query", json={"sql": f"{PRODUCT} AND {number} > -1"})
                answered.append(reply.status_code)
                return reply

            killer = threading.Thread(target=kill)
            with ThreadPoolExecutor(AT_ONCE) as clients:
                answers = [clients.submit(ask, number) for number in range(QUERIES)]
                killer.start()
                replies = [answer.result() for answer in answers]
            over.set()
            killer.join()
        lost = [reply for reply in replies if reply.status_code != 200]
        right = [reply for reply in replies if reply.status_code == 200]
        assert killed
        assert len(lost) <= len(killed), Counter(reply.status_code for reply in lost)
        assert {reply.status_code for reply in lost} <= {503}
        assert all("nothing else is affected" in reply.text for reply in lost), lost[0].text
        assert all(reply.json()["rows"] == [{"v": wanted}] for reply in right)
        target.canaries("killed workers")
    assert not target.faults, "\n".join(map(str, target.faults))
