"""Flink SQL as a peer: the same query over the same rows, in its own virtual environment.

Rows are written as CSV, all jobs run in one JVM, and their files are compared.  The fastest of
``runs`` counts; a copy into ``blackhole`` measures reading.  Needs Java, and a network the first
time.  Streaming mode with watermarks and object reuse, without checkpoints, is the fastest setting.
Flink's WITHIN is exclusive, so intervals are one millisecond longer.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

REQUIREMENT = "apache-flink>=2,<3"
SECONDS_MAX = 600
SCRIPT = """
import glob, json, os, shutil, sys, time
from importlib.metadata import version
from pyflink.table import EnvironmentSettings, TableEnvironment

work = json.load(open(sys.argv[1]))
for job in work["jobs"]:
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = env.get_config()
    settings.set("parallelism.default", str(job["parallelism"]))
    settings.set("pipeline.object-reuse", "true")
    env.execute_sql(
        f"CREATE TABLE s ({work['columns']}, WATERMARK FOR t AS t - {job['wait']}) WITH "
        f"('connector'='filesystem', 'path'='{work['path']}', 'format'='csv')"
    )
    if job["setup"]:
        env.execute_sql(job["setup"])
    out = os.path.join(work["scratch"], job["name"])
    sink = f"'connector'='filesystem', 'path'='{out}', 'format'='csv'"
    text = job["query"] or f"SELECT * FROM s MATCH_RECOGNIZE ({job['body']})"
    columns = job["columns"]
    if not columns:
        sink, text, columns = "'connector'='blackhole'", "SELECT * FROM s", work["columns"]
    env.execute_sql(f"CREATE TABLE found ({columns}) WITH ({sink})")
    seconds = []
    for _ in range(work["runs"] + 1):
        shutil.rmtree(out, ignore_errors=True)
        begun = time.perf_counter()
        env.execute_sql(f"INSERT INTO found {text}").wait()
        seconds.append(time.perf_counter() - begun)
    answer = {"name": job["name"], "parallelism": job["parallelism"], "seconds": min(seconds[1:]),
              "version": version("apache-flink"),
              "files": [f for f in glob.glob(out + "/*") if os.path.getsize(f)]}
    print("ANSWER " + json.dumps(answer), flush=True)
"""


class FlinkMissing(RuntimeError):
    """Flink cannot run here; the text says why."""


@dataclass(frozen=True)
class FlinkJob:
    """A MATCH_RECOGNIZE ``body`` or a ``query`` over ``s``; without ``columns`` only a read.
    ``setup``: a statement before it; ``delay_ms``: by which the watermark waits.
    """

    name: str
    body: str
    columns: str = ""
    parallelism: int = 1
    query: str = ""
    setup: str = ""
    delay_ms: int = 0


@dataclass(frozen=True)
class FlinkAnswer:
    """Fastest run, rows (columns ``f0``, ``f1`` ...) and Flink's version."""

    seconds: float
    rows: pa.Table | None
    version: str


def directory() -> Path:
    base = os.environ.get("CHRONICLE_BENCH_DIR") or os.path.join(
        tempfile.gettempdir(), "chronicle-bench"
    )
    return Path(base) / "flink"


def interpreter() -> Path:
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        raise FlinkMissing("Flink needs a Java runtime (11 or newer), and there is none")
    home = directory()
    python = home / "bin" / "python"
    done = home / "installed"
    if done.exists():
        return python
    home.parent.mkdir(parents=True, exist_ok=True)
    print(f"installing {REQUIREMENT} (400 MB) into {home}", file=sys.stderr, flush=True)
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(home)],
        [str(python), "-m", "pip", "install", "--quiet", REQUIREMENT],
    ):
        made = subprocess.run(command, capture_output=True, text=True)
        if made.returncode:
            last = (made.stderr.strip() or made.stdout.strip() or "no output").splitlines()[-1]
            raise FlinkMissing(f"{REQUIREMENT} could not be installed: {last}")
    done.touch()
    return python


def measure(table: pa.Table, jobs: list[FlinkJob], runs: int) -> dict[FlinkJob, FlinkAnswer]:
    """Run jobs over a table with ``t`` (ms); may raise FlinkMissing."""
    python = interpreter()
    answers: dict[FlinkJob, FlinkAnswer] = {}
    with tempfile.TemporaryDirectory(dir=directory().parent) as scratch:
        path = Path(scratch) / "events.csv"
        stamps = table["t"].cast(pa.timestamp("ms")).cast(pa.string())
        written = table.set_column(0, "t", stamps)
        options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none")
        pyarrow.csv.write_csv(written, path, options)
        names = {pa.int64(): "BIGINT", pa.float64(): "DOUBLE"}
        columns = ["t TIMESTAMP(3)"] + [f"{f.name} {names[f.type]}" for f in list(table.schema)[1:]]
        work = {
            "path": str(path),
            "scratch": scratch,
            "runs": runs,
            "columns": ", ".join(columns),
            "jobs": [
                asdict(job)
                | {"name": f"{i}", "wait": f"INTERVAL '{job.delay_ms / 1000}' SECOND(3)"}
                for i, job in enumerate(jobs)
            ],
        }
        (Path(scratch) / "work.json").write_text(json.dumps(work))
        (Path(scratch) / "run.py").write_text(SCRIPT)
        try:
            done = subprocess.run(
                [python, Path(scratch) / "run.py", Path(scratch) / "work.json"],
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
            )
        except subprocess.TimeoutExpired:
            raise FlinkMissing(f"it did not finish within {SECONDS_MAX} s") from None
        for line in done.stdout.splitlines():
            if line.startswith("ANSWER "):
                answer = json.loads(line.removeprefix("ANSWER "))
                job = jobs[int(answer["name"])]
                rows = _rows(answer["files"]) if job.columns else None
                answers[job] = FlinkAnswer(answer["seconds"], rows, answer["version"])
    if len(answers) < len(jobs):
        lines = [line for line in done.stderr.splitlines() if "Exception" in line]
        last = (lines or done.stderr.strip().splitlines() or ["no output"])[-1]
        raise FlinkMissing(f"Flink ended with code {done.returncode}: {last.strip()}")
    return answers


def _rows(files: list[str]) -> pa.Table:
    options = pyarrow.csv.ReadOptions(autogenerate_column_names=True)
    tables = [pyarrow.csv.read_csv(name, read_options=options) for name in files]
    return pa.concat_tables(tables) if tables else pa.table({})
