r"""Synthetic stream of factory machines, for the demo and examples; deterministic.

Machines report about once a second, work in jobs, rest, warm up and cool down.

==============  ============  ==================================================
``time``        timestamp us  one second apart per machine, 0.4 s of jitter
``machine``     string        ``press-00`` ... ``robot-39``
``state``       string        idle, running, degraded, stopped
``temperature`` double        degrees Celsius
``vibration``   double        mm/s
``power``       double        kW
``produced``    int64         pieces since the beginning of the stream
==============  ============  ==================================================

A fault (400 steps)::

    vibration    ____________/~~~~~~~\______      climbs from step 0, high from 200 to 320
    temperature  ________________/~~~~\____      follows from step 120
    state        running  degraded     stopped    degraded from 100, stopped from 320 to 400
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

EVENTS = 2_000_000
MACHINES = 40
START = np.datetime64("2026-01-05T06:00:00", "us")
SEED = 20260105

KINDS = ("press", "mill", "lathe", "robot")
STATES = ("idle", "running", "degraded", "stopped")
IDLE, RUNNING, DEGRADED, STOPPED = range(4)
JOB_STEPS = 900
FAULT_STEPS = 400
FAULTS_PER_STEP = 1 / 12_000
LAG = 300

SCHEMA = pa.schema(
    [
        pa.field("time", pa.timestamp("us"), False),
        pa.field("machine", pa.string()),
        pa.field("state", pa.string()),
        pa.field("temperature", pa.float64()),
        pa.field("vibration", pa.float64()),
        pa.field("power", pa.float64()),
        pa.field("produced", pa.int64()),
    ]
)

Floats = npt.NDArray[np.float64]


def factory_events(events: int = EVENTS, seed: int = SEED) -> pa.Table:
    """The first ``events`` of the stream, in time order, ties in machine order."""
    steps = -(-events // MACHINES)
    random = np.random.default_rng(seed)
    working = _jobs(random, steps)
    fault = _faults(random, steps)  # step within a fault, -1 outside of one
    state = np.where(working, RUNNING, IDLE).astype(np.int8)
    state[(fault >= 100) & (fault < 320)] = DEGRADED
    state[fault >= 320] = STOPPED
    active = (state == RUNNING) | (state == DEGRADED)
    temperature = _temperature(random, active, fault)
    vibration = _vibration(random, active, fault)
    rated = 5.0 + 3.0 * np.arange(MACHINES)[:, None] / MACHINES
    power = np.where(active, rated, 0.4) * (1 + 0.05 * random.standard_normal((MACHINES, steps)))
    produced = np.cumsum(active & (np.arange(steps) % 7 == 0), axis=1)
    micros = np.arange(steps, dtype=np.int64) * 1_000_000
    jitter = random.integers(0, 400_000, (MACHINES, steps))
    time = micros[None, :] + jitter
    order = np.argsort(time.ravel(), kind="stable")[:events]

    def column(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.ascontiguousarray(values).ravel()[order]

    machine = np.repeat(np.arange(MACHINES, dtype=np.int32), steps)[order]
    names = [f"{KINDS[at * len(KINDS) // MACHINES]}-{at:02}" for at in range(MACHINES)]
    start = int(START.astype(np.int64))
    return pa.table(
        [
            pa.array(column(time) + start, pa.int64()).cast(pa.timestamp("us")),
            pa.DictionaryArray.from_arrays(machine, names).cast(pa.string()),
            pa.DictionaryArray.from_arrays(column(state), list(STATES)).cast(pa.string()),
            column(np.round(temperature, 2)),
            column(np.round(vibration, 3)),
            column(np.round(power, 3)),
            column(produced),
        ],
        schema=SCHEMA,
    )


def _jobs(random: np.random.Generator, steps: int) -> npt.NDArray[np.bool_]:
    quarters = steps // JOB_STEPS + 2
    plan = np.repeat(random.random((MACHINES, quarters)) < 0.75, JOB_STEPS, axis=1)
    first = random.integers(0, JOB_STEPS, MACHINES)
    at = first[:, None] + np.arange(steps)[None, :]
    return np.take_along_axis(plan, at, axis=1)


def _faults(random: np.random.Generator, steps: int) -> npt.NDArray[np.int32]:
    fault = np.full((MACHINES, steps + FAULT_STEPS), -1, np.int32)
    count = max(1, round(MACHINES * steps * FAULTS_PER_STEP))
    profile = np.arange(FAULT_STEPS, dtype=np.int32)
    for machine, begin in zip(
        random.integers(0, MACHINES, count).tolist(),
        np.sort(random.integers(0, steps, count)).tolist(),
        strict=True,
    ):
        fault[machine, begin : begin + FAULT_STEPS] = profile
    return fault[:, :steps]


def _lagged(values: Floats) -> Floats:
    sums = np.cumsum(np.pad(values, ((0, 0), (LAG, 0)), mode="edge"), axis=1)
    mean: Floats = (sums[:, LAG:] - sums[:, :-LAG]) / LAG
    return mean


def _temperature(
    random: np.random.Generator, active: npt.NDArray[np.bool_], fault: npt.NDArray[np.int32]
) -> Floats:
    steps = active.shape[1]
    hour = 6 + np.arange(steps) / 3600
    hall = 19 + 4 * np.sin((hour - 9) * (2 * np.pi / 24))
    own = random.normal(0, 2, (MACHINES, 1))
    warm = 45 * _lagged(active.astype(np.float64))
    overheated = 30 * np.clip((fault - 120) / 150, 0, 1)
    return hall + own + warm + overheated + random.normal(0, 0.3, (MACHINES, steps))


def _vibration(
    random: np.random.Generator, active: npt.NDArray[np.bool_], fault: npt.NDArray[np.int32]
) -> Floats:
    steps = active.shape[1]
    worn = 6 * np.clip(fault / 200, 0, 1)
    calm = np.where(active, 2.0 + worn, 0.2)
    return np.abs(calm * (1 + 0.1 * random.standard_normal((MACHINES, steps))))
