"""Choosing terms: Algorithm 3.2 against trying everything, the estimate, and calibration."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle.commands.upkeep import calibrate
from chronicle.indexes.stream_indexes import StreamIndexes
from chronicle.query.pattern.compiled import compile_match
from chronicle.query.replay.applicability import demands
from chronicle.query.replay.calibration import calibrate_patterns
from chronicle.query.replay.choosing import greedy, optimal
from chronicle.query.replay.coarse import coarse_map
from chronicle.query.replay.context import REPLAY_GAP, PlanContext
from chronicle.query.replay.cost import (
    BlockCosts,
    CostModel,
    Weights,
    load_weights,
    priced,
    save_weights,
)
from chronicle.query.replay.offers import list_offers
from chronicle.query.replay.planning import consider, plan_match
from chronicle.query.replay.pricing import Pricing
from chronicle.query.replay.run_plan import run_match
from chronicle.query.replay.symbols import known_outlines
from chronicle.query.sql.match_clause import clause_of_text
from chronicle.schema import StreamSchema
from chronicle.store import Store


def costs(rng: random.Random, sizes: list[int], events: float) -> BlockCosts:
    shape = (len(sizes), max(sizes) + 1)
    rates, entries, runs = np.ones((1, *shape)), np.zeros(shape), np.zeros(shape)
    for b, size in enumerate(sizes):
        shares = sorted(rng.uniform(1e-4, 0.1) for _ in range(size))
        for k, share in enumerate(shares, 1):
            rates[0, b, k] = rates[0, b, k - 1] * share
            entries[b, k] = entries[b, k - 1] + share * events
            runs[b, k] = k
    lengths = np.array(sizes, np.int64)
    return BlockCosts(np.array([events]), rates, entries, runs, np.zeros(shape), lengths)


@pytest.mark.parametrize("seed", range(6))
def test_the_frontiers_find_about_what_trying_everything_finds(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.randrange(1, 4) for _ in range(rng.randrange(1, 5))]
    model = CostModel(costs(rng, sizes, 1e6), 300.0, False, False, Weights(), 100.0)
    every = list(itertools.product(*(range(size + 1) for size in sizes)))
    best = min(priced(model, counts).total_ns for counts in every)
    found = optimal(sizes, model)
    assert priced(model, found.counts) == found.estimate
    assert best <= found.estimate.total_ns <= 1.25 * best
    assert found.examined <= len(every)
    order = [b for b, size in enumerate(sizes) for _ in range(size)]
    assert greedy(order, sizes, model).estimate.total_ns >= best


def simulated(
    shares: list[float], lengths: list[int], before: bool, after: bool, window: int
) -> tuple[float, int]:
    """Part of a random stream that intervals cover, one occurrence at a time; and candidates."""
    rng = np.random.default_rng(11)
    events = 300_000
    places = [np.flatnonzero(rng.random(events) < share) for share in shares]
    covered = np.zeros(events, np.bool_)
    candidates = 0
    for place in places[0].tolist():
        at, end = place + lengths[0], place + lengths[0] - 1
        for listed, length in zip(places[1:], lengths[1:], strict=True):
            number = int(np.searchsorted(listed, at))
            if number == len(listed):
                break
            end = int(listed[number]) + length - 1
            at = end + 1
        else:
            if end - place >= window:
                continue
            candidates += 1
            reach = place + window - lengths[-1]
            farthest = int(places[-1][np.searchsorted(places[-1], reach, side="right") - 1])
            last = max(end, farthest + lengths[-1] - 1) if len(shares) > 1 else end
            low = end - window + 1 if before else place
            covered[max(0, low) : place + window if after else last + 1] = True
    return float(covered.mean()), candidates


@pytest.mark.parametrize(
    ("shares", "lengths", "before", "after"),
    [
        ([0.003], [2], False, False),
        ([0.001], [2], True, True),
        ([0.002, 0.01], [1, 1], False, False),
        ([0.02, 0.0005], [3, 2], False, False),
        ([0.02, 0.0005], [1, 1], False, True),
        ([0.004, 0.03, 0.004], [1, 2, 1], False, False),
        ([0.05, 0.001, 0.05], [1, 1, 1], True, False),
        ([0.01, 0.003, 0.02, 0.01], [2, 1, 1, 3], False, True),
    ],
)
def test_the_estimate_agrees_with_a_simulation(
    shares: list[float], lengths: list[int], before: bool, after: bool
) -> None:
    window = 200
    covered, candidates = simulated(shares, lengths, before, after, window)
    blocks = len(shares)
    rates = np.ones((1, blocks, 2))
    rates[0, :, 1] = shares
    none = np.zeros((blocks, 2))
    told = BlockCosts(np.array([300_000.0]), rates, none, none, none, np.array(lengths, np.int64))
    model = CostModel(told, window, before, after, Weights(), 0.0)
    found = priced(model, (1,) * blocks)
    noise = 3 / candidates**0.5
    assert found.events == pytest.approx(300_000 * covered, rel=0.05 + noise)


def test_rates_that_differ_with_time_are_modelled_where_they_hold() -> None:
    rates = np.ones((2, 1, 2))
    rates[0, 0, 1], rates[1, 0, 1] = 0.05, 1e-9
    none = np.zeros((1, 2))
    one = np.ones(1, np.int64)
    apart = BlockCosts(np.array([1e5, 9e5]), rates, none, none, none, one)
    mixed = BlockCosts(np.array([1e6]), rates[:1] * 0.1, none, none, none, one)
    models = [CostModel(c, 300.0, True, True, Weights(), 0.0) for c in (apart, mixed)]
    told = [priced(model, (1,)).events for model in models]
    assert told[0] == pytest.approx(1e5, rel=0.01)  # the whole of the part where it is frequent
    assert told[1] > 9e5


def test_calibration_measures_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHRONICLE_CALIBRATION", raising=False)
    assert load_weights(tmp_path) == load_weights(None) == Weights()
    weights = calibrate_patterns(events=40_000)
    assert min(dataclasses.asdict(weights).values()) > 0
    assert not set(dataclasses.asdict(weights).items()) & set(dataclasses.asdict(Weights()).items())
    path = save_weights(tmp_path, weights)
    assert load_weights(tmp_path) == weights
    for broken in ("not JSON", "{}", '{"version": 1, "nanoseconds": {"event": -1}}'):
        path.write_text(broken)
        os.utime(path, ns=(1, len(broken)))
        assert load_weights(tmp_path) == Weights()
    save_weights(tmp_path, Weights(event=7.0))
    assert load_weights(tmp_path).event == 7.0
    monkeypatch.setenv("CHRONICLE_CALIBRATION", str(tmp_path / "elsewhere.json"))
    assert load_weights(tmp_path) == Weights()


def test_the_command_calibrates_patterns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibrate_patterns, "__defaults__", (30_000,))
    chronicle.open(tmp_path / "store").close()
    calibrate(str(tmp_path / "store"))
    shown = capsys.readouterr().out
    kept = load_weights(tmp_path / "store")
    assert kept != Weights()
    assert f"{kept.interval:,.1f} ns" in shown


def test_a_query_plans_with_the_weights_of_its_store(tmp_path: Path) -> None:
    with chronicle.open(tmp_path / "store") as database:
        schema = pa.schema([("t", pa.int64()), ("x", pa.float64())])
        stream = database.create_stream("s", schema, "t")
        rng = np.random.default_rng(3)
        stream.append(pa.table({"t": np.arange(400_000), "x": rng.random(400_000)}))
        stream.create_index("x")
        pattern = (
            "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a PATTERN (A Z* B) "
            "WITHIN 100 DEFINE A AS x < 0.0001, B AS x > 0.9999)"
        )
        expected = database.sql(pattern).arrow()
        assert "whole stream" not in str(database.explain(pattern))
        # where runs are as dear as this, nothing is looked up
        save_weights(tmp_path / "store", Weights(run=1e12))
        assert "whole stream" in str(database.explain(pattern))
        assert database.sql(pattern).arrow().equals(expected)


@pytest.mark.parametrize(
    ("dear", "clause"),
    [
        ("walk", "PATTERN (A Z* B) WITHIN 100 DEFINE A AS x < 0.2, B AS y > A.y + 0.99"),
        ("condition", "PATTERN (A Z* B) WITHIN 100 DEFINE A AS x < 0.2, B AS sqrt(y) > 0.99"),
        ("around", "PARTITION BY k PATTERN (A B) DEFINE A AS x < PREV(y), B AS x > 0.9"),
        ("picked", "PARTITION BY k PATTERN (A B) WITHIN 100 DEFINE A AS x < 0.1, B AS y > 0.9"),
        ("interval", "PATTERN (A Z* B) WITHIN 100 DEFINE A AS x < 0.2, B AS y > 0.99"),
        ("near", "PATTERN (A Z* B) WITHIN 3 DEFINE A AS x < 0.02, B AS y > 0.9"),
        ("decoded", "PATTERN (A Z* B) WITHIN 3 DEFINE A AS x < 0.02, B AS y > 0.9"),
    ],
)
def test_the_model_uses_every_weight_that_is_measured(
    tmp_path: Path, dear: str, clause: str
) -> None:
    fields = [("t", pa.int64()), ("x", pa.float64()), ("y", pa.float64()), ("k", pa.int64())]
    schema = StreamSchema(pa.schema(fields), "t")
    rng, events = np.random.default_rng(3), 40_000
    with Store.open(tmp_path / "store", "rw") as store:
        stream = store.create_stream("s", schema)
        columns = {"x": rng.random(events), "y": rng.random(events), "k": np.arange(events) % 50}
        stream.append(pa.table({"t": np.arange(events), **columns}, schema=schema.arrow))
        stream.seal()
        indexes = StreamIndexes(tmp_path / "indexes", True)
        indexes.create("x", schema)
        indexes.create("y", schema)
        snapshot = stream.snapshot()
        indexes.catch_up(snapshot.state)
        by, _, rest = clause.rpartition("PATTERN")
        text = f"SELECT * FROM s MATCH_RECOGNIZE ({by}ORDER BY t MEASURES A.t AS a PATTERN{rest})"
        compiled = compile_match(clause_of_text(text), schema)
        (outlined, *_), *_ = known_outlines(compiled, schema, None, frozenset("xy"))

        def cost(weights: Weights) -> tuple[float, float]:
            context = PlanContext.of(
                snapshot, outlined, demands(compiled), indexes, weights, gap=REPLAY_GAP
            )
            told = consider(context, "all").plan.choice.estimate
            offers = list_offers(context, coarse_map(context.timeline, outlined, 0, events))
            pricing = Pricing(context, coarse_map(context.timeline, outlined, 0, events), offers)
            return told.total_ns, pricing.full_ns

        plain, more = cost(Weights()), cost(dataclasses.replace(Weights(), **{dear: 1e9}))
        indexes.close()
    assert max(m / p for m, p in zip(more, plain, strict=True)) > 2


AB = (
    "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a PATTERN (A B Z* C) WITHIN {} "
    "DEFINE A AS x < 0.01, B AS y < 0.01, C AS z < 0.01)"
)


def planned(
    tmp_path: Path,
    columns: dict[str, Any],
    weights: Weights,
    within: int = 500,
    gap: int | None = None,
) -> tuple[Any, Any, Any]:
    """The plan of ``auto`` for AB, with an index on every attribute, and the rows of both plans."""
    events = len(columns["x"])
    schema = StreamSchema(
        pa.schema([pa.field("t", pa.int64(), False), *((n, pa.float64()) for n in "xyz")]), "t"
    )
    with Store.open(tmp_path / "store", "rw") as store:
        stream = store.create_stream("s", schema)
        stream.append(pa.table({"t": np.arange(events), **columns}, schema=schema.arrow))
        stream.seal()
        indexes = StreamIndexes(tmp_path / "indexes", True)
        for name in "xyz":
            indexes.create(name, schema)
        snapshot = stream.snapshot()
        indexes.catch_up(snapshot.state)
        compiled = compile_match(clause_of_text(AB.format(within)), schema)
        plan = plan_match(snapshot, compiled, indexes, "auto", weights=weights, gap=gap)
        full = plan_match(snapshot, compiled, indexes, "replay")
        told = [list(run_match(snapshot, compiled, some)) for some in (plan, full)]
        answers = [pa.Table.from_batches(b, schema=compiled.output_schema) for b in told]
        indexes.close()
    return plan, *answers


def test_neighbours_that_depend_on_one_another_do_not_fool_the_choice(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    x = rng.random(300_000)
    weights = Weights(event=10.0, interval=2_000.0, entry=2.0, run=1_000.0, query=1.0)
    # B follows A always, so (A B) occurs a hundred times more often than if they knew nothing
    # of one another: intervals would cover nearly all
    columns = {"x": x, "y": np.roll(x, 1), "z": rng.random(len(x))}
    plan, got, expected = planned(tmp_path / "together", columns, weights)
    assert plan.spans is None
    assert "were expected" in plan.reason
    assert got.equals(expected)
    columns["y"] = rng.random(len(x))
    plan, got, expected = planned(tmp_path / "apart", columns, weights)
    assert plan.spans is not None
    assert plan.replayed() < 0.2
    assert got.equals(expected)


def test_lookups_end_when_replaying_what_is_left_costs_less(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(6)
    x, y, z = 0.02 + rng.random((3, 300_000))
    # A and B lie at even places only, so B hardly ever follows A; the rates cannot know that
    x[0::2][rng.random(150_000) < 0.1] = 0.0
    y[0::2][rng.random(150_000) < 0.1] = 0.0
    z[rng.random(300_000) < 0.002] = 0.0
    x[[1000, 250_000]], y[[1001, 250_001]], z[[1020, 250_020]] = 0.0, 0.0, 0.0
    weights = Weights(event=40.0, interval=1_000.0, entry=100.0, run=1_000.0, query=1.0)
    plan, got, expected = planned(tmp_path, {"x": x, "y": y, "z": z}, weights, within=50, gap=0)
    assert {offer.block for offer in plan.picked} == {0}, plan.details()
    assert plan.replayed() < 0.05
    assert got.equals(expected)
    assert got.num_rows == 2
