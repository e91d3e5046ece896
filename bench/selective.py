"""Random selective patterns of every kind: share of the stream read, and time against replay.

With quantifiers, groups, alternation, PERMUTE, PARTITION BY, derived values and conditions between
events, under all three event selections, over trades of 400 symbols, one a second.  A pattern is
*selective* if its matches, from first to last event (of the symbol, if partitioned), cover at most
``SELECTIVE`` of the stream; others are redrawn.  Rows must equal those of a replay, in order.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..api.database import Database, open_database
from .harness import Row, Section

SELECTIVE = 0.01
READ = 0.05
SYMBOLS = 400
PAIRS_MORE = 6
KINDS = [f"k{i:02}" for i in range(24)]
INDEXES = (
    "kind", "volume", "x", "kind, symbol", "price - PREV(price) PARTITION BY symbol",
    "price / PREV(price) PARTITION BY symbol", "x - PREV(x)",
)  # fmt: skip

SHAPES = {
    "of a symbol (PARTITION BY)": (
        "SELECT {} * FROM s MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY t MEASURES "
        "FIRST(t) AS first, LAST(t) AS last, count(*) AS events AFTER MATCH SKIP TO NEXT ROW "
        "PATTERN (A Z*? B) WITHIN 20000 DEFINE A AS price < PREV(price) - 3, "
        "B AS price > PREV(price) + 3)"
    ),
    "of a symbol, from neighbours (PARTITION BY)": (
        "SELECT {} * FROM s MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY t MEASURES "
        "FIRST(t) AS first, LAST(t) AS last, count(*) AS events AFTER MATCH SKIP TO NEXT ROW "
        "PATTERN (S A+ B+) WITHIN 4000 DEFINE A AS price < PREV(price) - 0.2, "
        "B AS price > PREV(price) + 0.2)"
    ),
}
"""V-shapes of a symbol's price, with and without a look before the match."""


def trades(total: int, seed: int = 7) -> pa.Table:
    rng = np.random.default_rng(seed)
    busy = rng.lognormal(0.0, 0.8, SYMBOLS)
    symbol = rng.choice(SYMBOLS, total, p=busy / busy.sum())
    steps = 0.05 * rng.standard_normal(total)
    jumps = rng.random(total) < 0.001
    steps[jumps] = rng.normal(0.0, 5.0, int(jumps.sum()))
    order = np.argsort(symbol, kind="stable")
    walk = np.cumsum(steps[order])
    first = np.searchsorted(symbol[order], np.arange(SYMBOLS))
    walk -= np.repeat(walk[np.minimum(first, total - 1)], np.bincount(symbol, minlength=SYMBOLS))
    price = np.empty(total)
    price[order] = walk
    price += 1000.0 + 5.0 * symbol
    shares = 0.6 ** np.arange(len(KINDS)) + 0.0005
    names = pa.array([f"s{i:03}" for i in range(SYMBOLS)])
    return pa.table(
        {
            "t": np.arange(total), "symbol": names.take(pa.array(symbol)),
            "kind": pa.array(KINDS).take(
                pa.array(rng.choice(len(KINDS), total, p=shares / shares.sum()))
            ),
            "price": np.round(price, 2),
            "volume": rng.lognormal(6.0, 1.5, total).astype(np.int64),
            "x": rng.random(total), "y": rng.random(total),
        }
    )  # fmt: skip


@dataclass(frozen=True)
class SelectivePattern:
    """A statement with a placeholder for its hint, and its traits."""

    text: str
    partitioned: bool
    traits: frozenset[str]

    def with_strategy(self, name: str) -> str:
        return self.text.replace("{}", f"/*+ strategy({name}) */", 1)


class _Writer:
    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._partitioned = bool(rng.random() < 0.4)
        self._traits = {"partition"} if self._partitioned else set[str]()
        self._before: list[str] = []  # earlier singleton variables
        self._defined: list[str] = []

    def pattern(self) -> SelectivePattern:
        rng = self._rng
        shape = self._pick(["chain", "chain", "chain", "group", "either", "permute"])
        body = {
            "chain": self._chain, "group": self._group, "either": self._either,
            "permute": self._permute,
        }[shape]()  # fmt: skip
        window = int(rng.choice([20, 60, 200]))
        selection = self._pick(["", "", "", " EVENT SELECTION SKIP TILL NEXT MATCH"])
        by = "PARTITION BY symbol " if self._partitioned else ""
        after = "" if selection else "AFTER MATCH SKIP TO NEXT ROW "
        window *= 20 if self._partitioned else 1
        text = (
            f"SELECT {{}} * FROM s MATCH_RECOGNIZE ({by}ORDER BY t MEASURES FIRST(t) AS first, "
            f"LAST(t) AS last, count(*) AS events {after}PATTERN ({body}) WITHIN {window}"
            f"{selection} DEFINE {', '.join(self._defined)})"
        )
        return SelectivePattern(text, self._partitioned, frozenset(self._traits))

    def _chain(self) -> str:
        parts = []
        for number in range(int(self._rng.integers(2, 5))):
            if number:
                parts.append(self._gap())
            suffix = self._pick(["", "", "", "", "+", "{2}", "{1,3}", "+?"])
            parts.append(self._variable(alone=not suffix) + suffix)
            if suffix:
                self._traits.add("loop")
        return " ".join(part for part in parts if part)

    def _group(self) -> str:
        self._traits.add("group")
        first = self._variable()
        inner = f"({first} {self._gap()} {self._variable(alone=False)})"
        self._before.clear()  # the group may repeat
        return f"{inner}{self._pick(['+', '{2,3}', '{1,2}'])} {self._gap()} {self._variable()}"

    def _either(self) -> str:
        self._traits.add("either")
        first = self._variable()
        one, two = self._variable(alone=False), self._variable(alone=False)
        return f"{first} {self._gap()} ({one} | {two}) {self._gap()} {self._variable()}"

    def _permute(self) -> str:
        self._traits.add("permute")
        names = [self._variable() for _ in range(int(self._rng.integers(2, 4)))]
        return f"PERMUTE({', '.join(names)})"

    def _gap(self) -> str:
        return self._pick(["", "Z*", "Z*?", "Z*?", "Z{0,5}", "Z?"])

    def _variable(self, alone: bool = True) -> str:
        name = "ABCDE"[len(self._defined)]
        share = 10.0 ** self._rng.uniform(-3.5, -1.0)
        texts = [self._plain(share)]
        if self._before and self._rng.random() < 0.5:
            self._traits.add("between events")
            texts = [self._plain(0.1), self._between(self._pick(self._before), share)]
        elif self._rng.random() < 0.4:
            self._traits.add("derived")
            texts = [self._derived(share)]
        self._defined.append(f"{name} AS {' AND '.join(texts)}")
        if alone:
            self._before.append(name)
        return name

    def _plain(self, share: float) -> str:
        low = float(self._rng.random()) * (1.0 - share)
        shares = 0.6 ** np.arange(len(KINDS)) + 0.0005
        kind = int(np.argmin(np.abs(shares / shares.sum() - share)))
        volume = int(np.exp(6.0 + 1.5 * statistics.NormalDist().inv_cdf(1.0 - share)))
        return self._pick(
            [
                f"x BETWEEN {low:.6f} AND {low + share:.6f}", f"kind = '{KINDS[kind]}'",
                f"volume > {volume}",
            ]
        )  # fmt: skip

    def _derived(self, share: float) -> str:
        if not self._partitioned:
            step = 1.0 - float(np.sqrt(2.0 * share))
            return self._pick(
                [
                    f"x - PREV(x) > {step:.6f}", f"x > PREV(x) + {step:.6f}",
                    f"x <= PREV(x) - {step:.6f}", f"ABS(x - PREV(x)) >= {step:.6f}",
                ]
            )  # fmt: skip
        step = 0.05 * statistics.NormalDist().inv_cdf(1.0 - min(share, 0.02)) + 0.05
        return self._pick(
            [
                f"price > PREV(price) + {step:.4f}", f"price < PREV(price) - {step:.4f}",
                f"price >= PREV(price) * {1.0 + step / 1500.0:.7f}",
                f"price NOT BETWEEN PREV(price) - {step:.4f} AND PREV(price) + {step:.4f}",
                f"ABS(price - PREV(price)) > {step:.4f}",
            ]
        )  # fmt: skip

    def _between(self, other: str, share: float) -> str:
        width = share / 2.0
        texts = [
            f"y BETWEEN {other}.y - {width:.6f} AND {other}.y + {width:.6f}",
            f"x > {other}.x + {1.0 - float(np.sqrt(2.0 * share)):.6f}",
            f"volume > {other}.volume * {1.0 / share:.0f}", f"kind = {other}.kind",
        ]  # fmt: skip
        if not self._partitioned:
            texts += [f"symbol = {other}.symbol"] * 2
        return self._pick(texts)

    def _pick(self, choices: Sequence[str]) -> str:
        return choices[int(self._rng.integers(len(choices)))]


def random_pattern(rng: np.random.Generator) -> SelectivePattern:
    return _Writer(rng).pattern()


def filled(directory: Path, table: pa.Table) -> Database:
    database = open_database(directory)
    stream = database.create_stream("s", table.schema, "t")
    for first in range(0, table.num_rows, 1 << 19):
        stream.append(table.slice(first, 1 << 19))
    stream.seal()
    for name in INDEXES:
        stream.create_index(name)
    return database


def read_share(database: Database, text: str) -> float:
    """Share of the events that the matcher gets."""
    plan = database.explain(text, analyze=True)
    for operator in plan.operators():
        if operator.name == "Replay":
            return float(dict(operator.figures).get("share_replayed", 1.0))
    raise AssertionError(f"no replay in the plan of {text}")


def covered(pattern: SelectivePattern, rows: pa.Table, total: int) -> float:
    """Approximate share of the stream between the first and last event of matches."""
    first = rows.column("first").to_numpy().astype(np.int64)
    last = rows.column("last").to_numpy().astype(np.int64)
    if pattern.partitioned:
        return float(np.minimum((last - first) / SYMBOLS + 1, 1e9).sum()) / total
    order = np.argsort(first, kind="stable")
    first, last = first[order], np.maximum.accumulate(last[order])
    begins = np.maximum(first, np.concatenate(([-1], last[:-1])) + 1)
    return float(np.maximum(last - begins + 1, 0).sum()) / total


@dataclass
class _Figures:
    patterns: list[SelectivePattern] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)
    truths: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    matches: int = 0
    drawn: int = 0

    def below(self, trait: str = "") -> tuple[int, int]:
        some = [
            share
            for pattern, share in zip(self.patterns, self.reads, strict=True)
            if not trait or trait in pattern.traits
        ]
        return len(some), sum(share < READ for share in some)


def run(short: bool) -> Section:
    return measured(300_000, 40) if short else measured(5_000_000, 500)


def measured(total: int, wanted: int) -> Section:
    """Measure ``wanted`` patterns over ``total`` events, and the V-shapes of prices."""
    rng, figures, shapes = np.random.default_rng(18), _Figures(), list[Row]()
    with tempfile.TemporaryDirectory(dir=os.environ.get("CHRONICLE_BENCH_DIR")) as directory:
        database = filled(Path(directory) / "store", trades(total))
        try:
            while len(figures.patterns) < wanted:
                _measure(database, random_pattern(rng), total, figures)
            shapes = [_shape(database, name, text, total) for name, text in SHAPES.items()]
        finally:
            database.close()
    count, below = figures.below()
    traits = sorted({trait for pattern in figures.patterns for trait in pattern.traits})
    section = Section(
        "Random selective patterns",
        f"{total:,} trades of {SYMBOLS} symbols, seven indexes, {wanted} random patterns in "
        f"``auto``, {figures.matches:,} matches; a pattern is selective when the events from the "
        f"first to the last of its matches are at most {SELECTIVE:.0%} of the stream "
        f"({figures.drawn:,} were drawn). Rows and order are those of a replay.",
    )
    section.rows += [
        Row(
            f"patterns that read under {READ:.0%} of the events",
            f"{below / count:.1%}", "100 % of the events",
            f"median {statistics.median(figures.reads):.3%} read", "95 %", below >= 0.95 * count,
        ),
        Row(
            "events from the first to the last of a match, the least that any plan can read",
            f"most {max(figures.truths):.2%}", "100 % of the events",
            f"median {statistics.median(figures.truths):.4%}",
        ),
        Row(
            "processor time, auto; peer: replay",
            f"least {min(figures.ratios):.2f}x", "1x",
            f"median {statistics.median(figures.ratios):.1f}x", "never below 0.9x",
            min(figures.ratios) >= 0.9,
        ),
    ]  # fmt: skip
    section.rows += shapes
    parts = ["{}: {} of {}".format(trait, *figures.below(trait)[::-1]) for trait in traits]
    section.notes.append(f"Under {READ:.0%}, by what patterns have: {', '.join(parts)}.")
    return section


def _shape(database: Database, name: str, text: str, total: int) -> Row:
    pattern = SelectivePattern(text, "PARTITION" in text, frozenset())
    replay, auto = pattern.with_strategy("replay"), pattern.with_strategy("auto")
    expected, found = database.sql(replay).arrow(), database.sql(auto).arrow()
    if not found.equals(expected):
        raise AssertionError(f"rows differ from those of a replay: {auto}")
    best = _faster(database, (replay, auto), PAIRS_MORE, [np.inf, np.inf])
    share = read_share(database, auto)
    return Row(
        f"V-shapes of prices {name}: {expected.num_rows:,} matches; processor time",
        f"{best[1] * 1000:.1f} ms, {share:.2%} read", f"{best[0] * 1000:.0f} ms",
        f"{best[0] / best[1]:.1f}x", "under 5 % read", share < READ,
    )  # fmt: skip


def _measure(database: Database, pattern: SelectivePattern, total: int, figures: _Figures) -> None:
    figures.drawn += 1
    replay, auto = pattern.with_strategy("replay"), pattern.with_strategy("auto")
    expected = database.sql(replay).arrow()
    share = covered(pattern, expected, total)
    if share > SELECTIVE:
        return
    found = database.sql(auto).arrow()
    if not found.equals(expected):
        raise AssertionError(f"rows differ from those of a replay: {auto}")
    best = _faster(database, (replay, auto), 2, [np.inf, np.inf])
    if best[1] > best[0]:
        best = _faster(database, (replay, auto), PAIRS_MORE, best)
    figures.patterns.append(pattern)
    figures.reads.append(read_share(database, auto))
    figures.truths.append(share)
    figures.ratios.append(best[0] / best[1])
    figures.matches += expected.num_rows
    if os.environ.get("CHRONICLE_BENCH_SHOW") and (
        figures.reads[-1] >= READ or figures.ratios[-1] < 0.9
    ):
        print(f"{figures.reads[-1]:.2%} {figures.ratios[-1]:.2f}x {auto}", flush=True)


def _faster(
    database: Database, texts: tuple[str, str], pairs: int, best: list[float]
) -> list[float]:
    best = list(best)
    for _ in range(pairs):
        for number, text in enumerate(texts):
            begun = time.process_time()
            database.sql(text).arrow()
            best[number] = min(best[number], time.process_time() - begun)
    return best
