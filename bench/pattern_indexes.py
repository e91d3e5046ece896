"""Index-based patterns against a full replay, on the thesis's synthetic stream (section 3.5.3).

Figures 3.9 (time by symbols), 3.11 (selection) and 3.13 (distributions), and random queries in
``auto``.  Rows must be equal.  At 5 M events the peer
is the thesis's prototype.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from . import figures
from .harness import Row, Section
from .pattern_stream import WINDOW, Bed, Measured, random_query

PROTOTYPE_MS = {2: 1468, 4: 444, 8: 243, 16: 92, 32: 33}
"""Medians of the thesis's prototype (Java) at 5 M events on a similar machine, symbols on A5."""
PAIRS_MORE = 6
STRATEGIES = ("all", "auto")
SYMBOLS = (2, 4, 8, 16, 32)
Curves = dict[str, list[tuple[float, float]]]


@dataclass
class _Setting:
    symbols: int
    special: str
    times: dict[str, list[float]] = field(default_factory=dict)
    prepared: list[float] = field(default_factory=list)
    choosing: list[float] = field(default_factory=list)
    replayed: list[float] = field(default_factory=list)

    def ratios(self, strategy: str) -> list[float]:
        pairs = zip(self.times["replay"], self.times[strategy], strict=True)
        return [theirs / ours for theirs, ours in pairs]

    def median(self, strategy: str) -> float:
        return statistics.median(self.times[strategy])


def _measure(bed: Bed, symbols: int, special: str, queries: int) -> _Setting:
    rng = np.random.default_rng(symbols * 10 + int(special[1]))
    setting = _Setting(symbols, special)
    bed.run(random_query(symbols, rng, special), "auto")
    for _ in range(queries):
        text = random_query(symbols, rng, special)
        bed.run(text, "replay")  # warm-up, as for the other plans
        replayed = bed.run(text, "replay")
        setting.times.setdefault("replay", []).append(replayed.total)
        for strategy in STRATEGIES:
            bed.run(text, strategy)
            found = bed.run(text, strategy)
            if not found.rows.equals(replayed.rows):
                raise AssertionError(f"{strategy}: rows differ from those of a replay: {text}")
            setting.times.setdefault(strategy, []).append(found.total)
            if strategy == "auto":
                setting.prepared.append(found.prepared)
                setting.choosing.append(found.plan.phases["selection_ms"])
                setting.replayed.append(found.plan.replayed())
    return setting


def run(short: bool) -> Section:
    if not short:
        figures.require()
    small, large = (500_000, 1_000_000) if short else (5_000_000, 50_000_000)
    section = Section(
        "Patterns through indexes",
        f"{small:,} and {large:,} events of five doubles and a time, no codec, window {WINDOW}; "
        "times are from the text of the query to its last row, in the median; warm page "
        "cache; every plan's rows are those of the replay.",
    )
    base = os.environ.get("CHRONICLE_BENCH_DIR")
    with tempfile.TemporaryDirectory(dir=base) as directory:
        bed = Bed(Path(directory), small)
        try:
            _against_the_prototype(bed, section, 3 if short else 30)
            _random(bed, section, 10 if short else 500)
        finally:
            bed.close()
    with tempfile.TemporaryDirectory(dir=base) as directory:
        bed = Bed(Path(directory), large)
        try:
            _at_full_size(bed, section, short)
        finally:
            bed.close()
    return section


def _against_the_prototype(bed: Bed, section: Section, queries: int) -> None:
    for symbols in SYMBOLS:
        setting = _measure(bed, symbols, "a5", max(3, queries // 3) if symbols < 8 else queries)
        theirs = PROTOTYPE_MS[symbols]
        ours = setting.median("auto")
        section.rows.append(
            Row(
                f"{bed.total:,} events, m = {symbols}, A5, auto; peer: the thesis's prototype",
                f"{ours:.1f} ms ({statistics.median(setting.prepared):.1f} ms prepared)",
                f"{theirs} ms",
                f"{theirs / ours:.1f}x",
                "at least 10x",
                theirs / ours >= 10,
            )
        )


def _random(bed: Bed, section: Section, queries: int) -> None:
    """Random queries in ``auto`` mode, repeated if it seems slower than replay."""
    rng = np.random.default_rng(500)
    ratios: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(queries):
        symbols = int(rng.choice(SYMBOLS))
        text = random_query(symbols, rng, f"a{rng.integers(1, 6)}")
        best = _pairs(bed, text, 2, {})
        if best["auto"].total > best["replay"].total:
            best = _pairs(bed, text, PAIRS_MORE, best)
        if not best["auto"].rows.equals(best["replay"].rows):
            raise AssertionError(f"rows differ from those of a replay: {text}")
        whole = best["auto"].plan.spans is None
        ratios[whole].append(best["replay"].total / best["auto"].total)
    every = ratios[False] + ratios[True]
    section.rows.append(
        Row(
            f"{bed.total:,} events, {queries} random queries, auto; peer: replay",
            f"least {min(every):.2f}x",
            "1x",
            f"median {statistics.median(every):.1f}x",
            "never below 0.9x",
            min(every) >= 0.9,
        )
    )
    parts = [
        f"auto {what} in {len(some)} of the {queries} random queries, least {min(some):.2f}x"
        for what, some in (
            ("replayed intervals", ratios[False]),
            ("decided for a full replay", ratios[True]),
        )
        if some
    ]
    section.notes.append(
        "; ".join(parts) + f". The faster of two runs each, of {2 + PAIRS_MORE} where auto was "
        "behind after two."
    )


def _pairs(bed: Bed, text: str, pairs: int, best: dict[str, Measured]) -> dict[str, Measured]:
    best = dict(best)
    for strategy in ("auto", "replay") * pairs:
        found = bed.run(text, strategy)
        known = best.get(strategy)
        if known is None or found.total < known.total:
            best[strategy] = found
    return best


def _at_full_size(bed: Bed, section: Section, short: bool) -> None:
    def queries(symbols: int) -> int:
        return 2 if short else {2: 5, 4: 10}.get(symbols, 25)

    by_symbols = [_measure(bed, symbols, "a5", queries(symbols)) for symbols in SYMBOLS]
    by_attribute = [_measure(bed, 8, f"a{j}", queries(8)) for j in range(1, 5)]
    by_attribute.append(by_symbols[SYMBOLS.index(8)])
    bars = {("a5", 8): 5, ("a5", 16): 10, ("a5", 32): 10}
    bars.update({(f"a{j}", 8): 50 for j in range(1, 4)})
    for setting in [*by_symbols, *by_attribute[:-1]]:
        ratios = setting.ratios("auto")
        bar = bars.get((setting.special, setting.symbols))
        name = f"m = {setting.symbols}, {setting.special.upper()}"
        if setting.special != "a5":
            name = f"m = {setting.symbols}, one symbol on {setting.special.upper()}"
        section.rows.append(
            Row(
                f"{bed.total:,} events, {name}, auto ({len(ratios)} queries); peer: replay",
                f"{setting.median('auto'):.1f} ms",
                f"{setting.median('replay'):.0f} ms",
                f"{statistics.median(ratios):.1f}x (least {min(ratios):.2f}x)",
                "" if bar is None else f"median at least {bar}x",
                None if bar is None else statistics.median(ratios) >= bar,
            )
        )
    for setting in [*by_symbols, *by_attribute[:-1]]:
        _selection(section, setting)
    if not short:
        _draw(by_symbols, by_attribute)
        section.notes += [
            f"![{what}](figures/{name}.svg)"
            for name, what in (
                ("pattern-runtime", "Run time by number of symbols"),
                ("pattern-speedup", "Speed-up over replay by number of symbols"),
                ("pattern-runtime-distribution", "Run time by distribution"),
                ("pattern-speedup-distribution", "Speed-up over replay by distribution"),
                ("pattern-selection", "Selection by number of symbols"),
            )
        ]


def _selection(section: Section, setting: _Setting) -> None:
    choosing = statistics.median(setting.choosing)
    section.rows.append(
        Row(
            f"selection of indexes, m = {setting.symbols}, {setting.special.upper()}, auto",
            f"{choosing:.2f} ms",
            f"{statistics.median(setting.replayed):.2%} replayed",
            "",
            "below 5 ms" if setting.symbols == 16 else "",
            choosing < 5 if setting.symbols == 16 else None,
        )
    )


def _draw(by_symbols: Sequence[_Setting], by_attribute: Sequence[_Setting]) -> None:
    def curves(
        settings: Sequence[_Setting], places: Sequence[int], ratio: bool
    ) -> dict[str, list[tuple[float, float]]]:
        names = STRATEGIES if ratio else ("replay", *STRATEGIES)
        return {
            name: [
                (at, statistics.median(s.ratios(name)) if ratio else s.median(name))
                for at, s in zip(places, settings, strict=True)
            ]
            for name in names
        }

    ticks = {float(m): str(m) for m in SYMBOLS}
    places = range(1, 6)
    attributes = {float(j): f"A{j}" for j in places}
    figures.lines(
        "pattern-runtime", "Run time by number of symbols (Figure 3.9 a)", "symbols on A5",
        "median time, ms", curves(by_symbols, SYMBOLS, False), ticks=ticks,
    )  # fmt: skip
    figures.lines(
        "pattern-speedup", "Speed-up over replay by number of symbols (Figure 3.9 b)",
        "symbols on A5", "median speed-up", curves(by_symbols, SYMBOLS, True), ticks=ticks,
    )  # fmt: skip
    figures.lines(
        "pattern-runtime-distribution", "Run time by distribution (Figure 3.13 a)",
        "attribute of one of eight symbols", "median time, ms",
        curves(by_attribute, places, False), log="y", ticks=attributes,
    )  # fmt: skip
    figures.lines(
        "pattern-speedup-distribution", "Speed-up over replay by distribution (Figure 3.13 b)",
        "attribute of one of eight symbols", "median speed-up",
        curves(by_attribute, places, True), log="y", ticks=attributes,
    )  # fmt: skip
    figures.lines(
        "pattern-selection", "Selection by number of symbols (Figure 3.11)", "symbols on A5",
        "median",
        {
            "selection time, ms": [
                (s.symbols, statistics.median(s.choosing)) for s in by_symbols
            ],
        },
        ticks=ticks,
    )  # fmt: skip
