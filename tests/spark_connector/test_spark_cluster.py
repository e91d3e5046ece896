"""A real standalone cluster on the loopback interface: a master, two workers, and one that dies.

The driver is a process of its own: the session of the other tests is local.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from chronicle.store.store import Store
from chronicle.tests.patience import PATIENCE_S, wait_until

pytestmark = [pytest.mark.timeout(1800)]

DRIVER = """
import json, os, sys, time, warnings
warnings.simplefilter("ignore")
from pathlib import Path
from pyspark.sql import SparkSession, functions as F
from chronicle.ingest import IngestRequest, Target
from chronicle.spark_connector.pipeline import run_pipeline

master, place, step = sys.argv[1:4]
place = Path(place)
spark = (
    SparkSession.builder.master(master)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "512m")
    .config("spark.executor.memory", "512m")
    .config("spark.cores.max", "2")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.python.unix.domain.socket.enabled", "true")
    .config("spark.executor.processTreeMetrics.enabled", "false")
    .config("spark.log.level", "ERROR")
    .getOrCreate()
)

def load(stream):
    reader = spark.read.format("chronicle").option("path", str(place / "store"))
    return reader.option("stream", stream).load()

answer = {}
if step == "ingest":
    request = IngestRequest([str(place / "*.csv")], stream="s", time="when", create=True)
    report = run_pipeline(request, Target(path=place / "store"), spark=spark)
    answer = report.to_dict()
    answer["read"] = load("s").count()
    answer["sum"] = load("s").agg(F.sum("value")).first()[0]
    context = spark.sparkContext
    hosts = context._jsc.sc().getExecutorMemoryStatus().size() - 1
    answer["executors"] = hosts
if step == "kill":
    marks = place / "marks"
    marks.mkdir(exist_ok=True)

    def held(batches):
        for number, batch in enumerate(batches):
            while number and not (place / "killed").exists():
                (marks / str(os.getpid())).touch()  # tells the test that a task is writing
                time.sleep(0.05)
            yield batch

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    rows = spark.range(0, 20000, 1, 4).selectExpr("timestamp_seconds(id) AS t", "id AS n")
    rows.mapInArrow(held, "t timestamp, n long").write.format("chronicle").mode("append").option(
        "path", str(place / "store")
    ).option("stream", "killed").option("time", "t").save()
    answer["read"] = load("killed").count()
    answer["sum"] = load("killed").agg(F.sum("n")).first()[0]
print("ANSWER", json.dumps(answer))
spark.stop()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Cluster:
    """Processes of a master and its workers."""

    place: Path
    port: int = field(default_factory=free_port)
    web: int = field(default_factory=free_port)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(self.place / "work"),
            "SPARK_LOCAL_DIRS": str(self.place / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [
            str(home / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{kind.lower()}.{kind}",
            *("--host", "127.0.0.1", *arguments),
        ]
        with (self.place / f"{kind}-{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def workers(self) -> int:
        """How many the master has; none until it answers."""
        place = f"http://127.0.0.1:{self.web}/json/"
        try:
            with urllib.request.urlopen(place, timeout=PATIENCE_S) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (OSError, ValueError):
            return 0

    def driver(self, data: Path, step: str) -> subprocess.Popen[str]:
        script = self.place / "driver.py"
        script.write_text(DRIVER)
        return subprocess.Popen(
            [sys.executable, str(script), self.url, str(data), step],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def answer_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate()
    lines = [line for line in output.splitlines() if line.startswith("ANSWER ")]
    assert process.returncode == 0, output[-4000:]
    assert lines, output[-4000:]
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("ANSWER "))
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java runtime")
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        found.start("Master", "--port", str(found.port), "--webui-port", str(found.web))
        for _ in range(2):
            found.start(
                "Worker",
                "--cores",
                "1",
                "--memory",
                "1g",
                "--webui-port",
                str(free_port()),
                found.url,
            )
        wait_until(lambda: found.workers() == 2, f"two workers: see the logs in {found.place}")
        yield found
    finally:
        for process in reversed(found.processes):
            process.terminate()
        for process in found.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def test_two_workers_ingest_and_read(cluster: Cluster, tmp_path: Path) -> None:
    rows = 0
    for name in ("a", "b", "c"):
        numbers = range(rows, rows + 20_000)
        lines = ["when,value", *(f"{1_704_067_200 + n},{n}" for n in numbers)]
        rows += 20_000
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    found = answer_of(cluster.driver(tmp_path, "ingest"))
    assert found["stored"] == found["rows"] == found["read"] == rows
    assert found["sum"] == rows * (rows - 1) // 2
    assert found["executors"] == 2


def test_a_worker_that_dies_while_it_writes_costs_nothing(cluster: Cluster, tmp_path: Path) -> None:
    driver = cluster.driver(tmp_path, "kill")
    worker = psutil.Process(cluster.processes[-1].pid)

    def writes() -> bool:
        assert driver.poll() is None
        marks = {int(mark.name) for mark in (tmp_path / "marks").glob("*")}
        return bool(marks) and not marks.isdisjoint(p.pid for p in worker.children(True))

    wait_until(writes, "a task of that worker")
    for executor in worker.children():
        executor.kill()
    (tmp_path / "killed").touch()
    found = answer_of(driver)
    assert found == {"read": 20_000, "sum": 19_999 * 10_000}
    with Store.open(tmp_path / "store", mode="r") as store:
        assert store.stream("killed").snapshot().version == 1  # one commit
    staging = tmp_path / "store" / "streams" / "killed" / "staging"
    assert list(staging.iterdir()) == []
