"""Workers: confined, killed, replaced, gone with their owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from chronicle.errors import StoreClosed, WorkerLost
from chronicle.isolation import pool as pools
from chronicle.isolation.channel import ChannelClosed, Garbage
from chronicle.isolation.pool import Pool, PoolSpec, open_pool

from ..patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux")

HERE = Path(__file__).parent
MIB = 1 << 20
SPEC: dict[str, Any] = {
    "entry": "strange_worker",
    "memory_bytes": 64 * MIB,
    "shared_bytes": 400 * MIB,
    "spill_bytes": 1 * MIB,
}


@pytest.fixture(scope="module", autouse=True)
def entry() -> Iterator[None]:
    sys.path.append(str(HERE))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pools, "END_S", PATIENCE_S)
        yield
    sys.path.remove(str(HERE))


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "secret"
    path.write_text("x")
    return path


@pytest.fixture(scope="module")
def pool(entry: None, secret: Path) -> Iterator[Pool]:
    os.environ["CHRONICLE_SECRET_TOKEN"] = "x"
    pool = open_pool(PoolSpec(**SPEC, options=(("secret", str(secret)), ("owner", os.getpid()))))
    yield pool
    del os.environ["CHRONICLE_SECRET_TOKEN"]
    pool.close()


def running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_for_the_end_of(*pids: int) -> None:
    wait_until(lambda: not any(map(running, pids)), "the end of workers")


def test_a_worker_reaches_nothing(pool: Pool) -> None:
    lease = pool.lease()
    lease.channel.send({"mode": "escape"})
    told, _ = lease.channel.receive()
    lease.give_back()
    confined = pool.confinement
    assert told["secrets"] == []
    assert len(told["files"]) <= 5, "standard streams and its socket"
    if confined["landlock"]:
        for attempt in ("read /etc/passwd", "read the store", "list /tmp", "write /tmp"):
            assert told[attempt] == "PermissionError", attempt
        assert told["write own"] == "done: None"
    if confined["seccomp"]:
        for attempt in ("socket", "unix socket", "fork", "exec", "memory file"):
            assert told[attempt] == "PermissionError", attempt
        assert told["signal the owner"] == told["signal the fork_server"] == "PermissionError"
        assert told["ptrace"] == -1
    assert running(pool.pids[0])


def test_memory_ends_at_the_limit(pool: Pool) -> None:
    lease = pool.lease()
    lease.channel.send({"mode": "allocate"})
    told, _ = lease.channel.receive()
    lease.give_back()
    assert 64 <= told["mib"] <= 64 + 192 + 16


def test_all_workers_together_have_a_budget(pool: Pool) -> None:
    leases = [pool.lease() for _ in range(3)]
    for lease, mib in zip(leases, (180, 140, 110), strict=True):
        lease.channel.send({"mode": "grow", "mib": mib})
    largest, *others = leases
    with pytest.raises(ChannelClosed) as closed:
        largest.channel.receive()
    error = largest.lost(closed.value)
    assert isinstance(error, WorkerLost)
    assert error.why == "memory"
    for lease in others:
        assert not lease._worker.ended(0.1)
        lease.discard()


@pytest.mark.parametrize("mode", ["noise", "long message", "long data", "no json", "deep json"])
def test_noise_is_garbage_before_memory_is_taken_for_it(pool: Pool, mode: str) -> None:
    lease = pool.lease()
    lease.channel.send({"mode": mode})
    with pytest.raises(Garbage) as garbage:
        lease.channel.receive()
    error = lease.lost(garbage.value)
    assert isinstance(error, WorkerLost)
    assert error.why == "crash"
    wait_for_the_end_of(lease.pid)


def test_a_death_is_told_with_its_signal(pool: Pool) -> None:
    lease = pool.lease()
    lease.channel.send({"mode": "die"})
    with pytest.raises(ChannelClosed) as closed:
        lease.channel.receive()
    assert "SIGABRT" in str(lease.lost(closed.value))


def test_a_worker_serves_many_leases_and_is_replaced() -> None:
    pool = open_pool(PoolSpec(**SPEC, leases_max=3))
    try:
        seen = []
        for _ in range(6):
            lease = pool.lease()
            seen.append(lease.pid)
            lease.give_back()
        assert len(set(seen)) == 2
        assert seen[0] == seen[2] != seen[3] == seen[5]
        wait_for_the_end_of(seen[0])
    finally:
        pool.close()


def test_an_old_worker_is_replaced() -> None:
    pool = open_pool(PoolSpec(**SPEC, age_s=0.2))
    try:
        lease = pool.lease()
        lease.give_back()
        time.sleep(0.3)
        second = pool.lease()
        second.give_back()
        assert second.pid != lease.pid or not running(lease.pid)
    finally:
        pool.close()


def test_a_worker_that_died_in_its_sleep_is_not_lent(pool: Pool) -> None:
    lease = pool.lease()
    lease.give_back()
    os.kill(lease.pid, signal.SIGKILL)
    wait_for_the_end_of(lease.pid)
    other = pool.lease()
    assert other.pid != lease.pid
    other.give_back()


def test_the_nursery_is_replaced_too() -> None:
    pool = open_pool(PoolSpec(**SPEC, leases_max=1))
    try:
        pool.lease().give_back()
        os.kill(pool.pids[0], signal.SIGKILL)
        pool.lease().give_back()
    finally:
        pool.close()


def test_closing_leaves_no_process_and_no_directory() -> None:
    pool = open_pool(PoolSpec(**SPEC, options=(("close", 1),)))
    held = pool.lease()
    pool.lease().give_back()
    pids, scratch = pool.pids, pool._root
    assert scratch is not None
    root = scratch.path
    assert len(pids) == 3
    assert (root.stat().st_mode & 0o777) == 0o700
    assert all((path.stat().st_mode & 0o777) == 0o700 for path in root.iterdir())
    pool.close()
    wait_for_the_end_of(*pids)
    assert not root.exists()
    with pytest.raises(ChannelClosed) as closed:
        held.channel.receive()
    assert isinstance(held.lost(closed.value), StoreClosed)
    with pytest.raises(StoreClosed):
        pool.lease()


def test_a_pool_is_shared_until_its_last_user_closes_it() -> None:
    spec = PoolSpec(**SPEC, options=(("shared", 1),))
    first, second = open_pool(spec), open_pool(spec)
    assert first is second
    first.close()
    second.lease().give_back()
    pids = second.pids
    second.close()
    wait_for_the_end_of(*pids)


PROGRAM = """
import os, signal, sys, time
sys.path.append({here!r})
from chronicle.isolation.pool import PoolSpec, open_pool
pool = open_pool(PoolSpec("strange_worker", 64 << 20, 400 << 20))
lease = pool.lease()
lease.channel.send({{"mode": "hang"}})
pool.lease().give_back()
print(*pool.pids, flush=True)
{end}
"""


def run(end: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM.format(here=str(HERE), end=end)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    "end",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os._exit(0)",
        "sys.exit(0)",
        "lease.discard(); pool.close()",
    ],
)
def test_no_orphan_outlives_its_owner(end: str) -> None:
    with run(end) as process:
        out, error = process.communicate()
    wait_for_the_end_of(*map(int, out.split()))
    assert error == ""


FORKED = """
pid = os.fork()
if pid == 0:
    other = pool.lease()
    mine = other.pid
    other.channel.send({"mode": "allocate"})
    ok = other.channel.receive()[0]["mib"] > 0 and mine not in PIDS
    other.give_back()
    pool.close()
    os._exit(0 if ok else 1)
assert os.waitpid(pid, 0)[1] == 0
again = pool.lease()
again.channel.send({"mode": "allocate"})
assert again.channel.receive()[0]["mib"] > 0
again.give_back()
lease.discard()
pool.close()
print("fine")
"""


def test_a_fork_of_the_owner_has_workers_of_its_own() -> None:
    with run("PIDS = pool.pids\n" + FORKED) as process:
        out, error = process.communicate()
    assert out.endswith("fine\n"), error
    assert "Traceback" not in error


def test_an_interrupt_does_not_reach_the_workers() -> None:
    end = (
        "try:\n    print('waits', flush=True)\n    time.sleep(1e6)\n"
        "except KeyboardInterrupt:\n    lease.discard(); pool.close()"
    )
    with run(end) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert process.stdout.readline() == "waits\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate()
    assert error == ""
    wait_for_the_end_of(*pids)
