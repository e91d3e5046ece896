"""Kernels that run as Python before there is machine code: the same answers, and when not."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import chronicle
from chronicle import interpreted, machine_code, sorting
from chronicle.compiled import Kernel, interpretable, kernel
from chronicle.compiled_beside import Beside
from chronicle.indexes import kernels as index_kernels
from chronicle.indexes import lookup
from chronicle.ownership import Owner
from chronicle.query.replay import candidates, interval_stream, partition_spans, term_selection
from chronicle.schema import Attribute, Storage
from chronicle.store import columns, merge
from chronicle.store.columns import ColumnView
from chronicle.store.deletions import DeletedEvents
from chronicle.store.leaving_out import without_rows
from chronicle.store.packing import Encoding, pack, unpack

N = 3_000


class Uncompiled:
    """Nothing has machine code, and nobody makes it."""

    def __init__(self) -> None:
        self.owner = Owner("the test")

    def has_compiled(self, *_: object) -> bool:
        return False


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> Uncompiled:
    """A process on a fresh machine."""
    beside = Uncompiled()
    monkeypatch.setattr(interpreted, "_beside", beside)
    return beside


# ---------------------------------------------------------------------------- the same to the bit


def interpretables() -> dict[str, Kernel]:
    """Every kernel that says that it may run as Python."""
    found = {}
    modules = ["chronicle.sorting"]
    for folder in ("store", "indexes", "query", "formats", "live"):
        package = importlib.import_module(f"chronicle.{folder}")
        inside = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        modules += [module.name for module in inside]
    for module_name in modules:
        for name, value in vars(importlib.import_module(module_name)).items():
            if isinstance(value, Kernel) and value._interpreting is not None:
                found[f"{value.function.__module__}.{name}"] = value
    return found


def copied(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        copy = value.copy(order="K")
        copy.flags.writeable = value.flags.writeable
        return copy
    if isinstance(value, tuple):
        parts = [copied(each) for each in value]
        return tuple(parts) if type(value) is tuple else type(value)(*parts)
    return value


def bits(value: Any) -> Any:
    """What is compared; which sign a NaN has is the processor's and the compiler's choice."""
    if isinstance(value, np.ndarray):
        words = value.copy().reshape(-1)
        if words.dtype.itemsize == 8:
            words.view(np.uint64)[words.view(np.uint64) == 0xFFF8 << 48] = 0x7FF8 << 48
        return value.dtype, value.shape, words.tobytes()
    if isinstance(value, tuple):
        return [bits(each) for each in value]
    return (type(value), np.float64(value).tobytes()) if isinstance(value, float) else value


@pytest.fixture
def twice(uncompiled: Uncompiled, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Run each such kernel as Python, too, and compare; gives how often each was."""
    monkeypatch.setattr(interpreted, "SECONDS_MAX", 1_000.0)
    counts: dict[str, int] = {}
    call = Kernel.__call__

    def both(self: Kernel, *arguments: Any) -> Any:
        state = self._interpreting
        if state is None or interpreted.is_running():
            return call(self, *arguments)
        theirs, before = copied(arguments), bits(arguments)
        state.seconds, state.hopeless = 0.0, False
        found = interpreted.answer(self, state, theirs)
        result = self.form(*arguments)
        if found is not interpreted.UNANSWERED:
            name = f"{self.function.__module__}.{self.function.__name__}"
            assert bits(found) == bits(result), name
            assert bits(theirs) == bits(arguments), name
            counts[name] = counts.get(name, 0) + 1
        else:
            assert bits(theirs) == before
        return result

    monkeypatch.setattr(Kernel, "__call__", both)
    return counts


QUERIES = (
    "SELECT count(*), sum(x), sum(i), min(x), max(x), avg(i) FROM s WHERE t >= 700 AND t < 2100",
    "SELECT * FROM s WHERE x > 0.9 AND t > 10",
    "SELECT k, sum(x), count(i) FROM s GROUP BY k",
    "SELECT window_start, k, avg(x), min(x), max(i), sum(i), count(x) "
    "FROM TUMBLE(s, t, 100) GROUP BY ALL",
    "SELECT window_start, k, avg(x), stddev(x), max(i) FROM HOP(s, t, 50, 200) GROUP BY ALL",
    "SELECT window_start, sum(x), count(*) FROM TUMBLE(s, t, 100) GROUP BY ALL",
    "SELECT window_start, max(x), sum(i) FROM HOP(s, t, 70, 200) GROUP BY ALL",
    "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES A.x AS a, LAST(B.i) AS b "
    "PATTERN (A B* C) WITHIN 40 DEFINE A AS x > 0.9, B AS i > PREV(i), C AS x < 0.2)",
    "SELECT /*+ strategy(replay) */ * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a, "
    "C.x AS c PATTERN (A C) WITHIN 40 DEFINE A AS i = 7, C AS i = 8)",
    "SELECT /*+ strategy(replay) */ * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t "
    "MEASURES A.t AS a PATTERN (A C) WITHIN 40 DEFINE A AS i = 7 AND x > 0.1, C AS i = 8)",
    "SELECT * FROM s MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES A.t AS a, B.x AS c "
    "PATTERN (A Z* B) WITHIN 30 DEFINE A AS x > 0.99, Z AS i > 3, B AS x < 0.01)",
)


def rows(seed: int, dirty: bool) -> pa.Table:
    """Events with null values; dirty ones with NaN, infinities and the ends of the integers."""
    random = np.random.default_rng(seed)
    x, i = random.random(N), random.integers(0, 40, N)
    x[: N // 2] *= 0.6  # the tree tells where high ones are not
    if dirty:
        x[random.integers(0, N, 60)] = random.choice([np.nan, np.inf, -np.inf, -0.0, 1e308], 60)
        i[random.integers(0, N, 60)] = random.choice([2**63 - 1, -(2**63), -1, 2**62], 60)
    columns = [
        pa.array(np.sort(random.integers(0, 2_500, N))),
        pa.array(x, mask=random.random(N) < 0.1),
        pa.array(i, mask=random.random(N) < 0.1),
        pa.array(random.choice(["a", "b", "c"], N)),
    ]
    return pa.table(columns, ["t", "x", "i", "k"])


@pytest.mark.parametrize("dirty", [False, True])
def test_each_gives_the_same_as_machine_code(
    tmp_path: Path, twice: dict[str, int], dirty: bool
) -> None:
    with chronicle.open(tmp_path / "s") as database:
        table = rows(1, dirty)
        options = {"leaf_bytes": 1 << 13}
        stream = database.create_stream("s", table.schema, "t", options=options)
        stream.append(table)
        stream.append(table.slice(N // 2, 50))  # late
        for _ in range(2):
            for sql in QUERIES:
                try:
                    database.sql(sql).arrow()
                except chronicle.SqlError as error:
                    if not dirty or "range" not in str(error):  # of a sum
                        raise
            for attribute in () if stream.indexes() else ("x", "i", "k"):
                stream.create_index(attribute)
    words = np.random.default_rng(2).integers(0, 2**63, 500, dtype=np.uint64)
    assert index_kernels.count_bits(words) == sum(int(word).bit_count() for word in words)
    for encoding in Encoding.DELTA, Encoding.PACKED:
        values = np.cumsum(words[:300] >> np.uint64(30)).astype(np.int64)
        chunk = pack(values, encoding, force=True)
        assert chunk is not None
        assert (unpack(memoryview(chunk), encoding, 300, 0, 300) == values).all()
    random, ordered = np.random.default_rng(3), np.arange(300)
    ticks, late = random.integers(0, 90, 300), np.zeros(300, np.int64)
    merge._stragglers(ticks, late)
    many = random.integers(0, 2_000, 2 * sorting.SMALL)
    for side in ("left", "right"):
        sorting.places_in(np.sort(ticks), np.sort(many), side)
    starts = np.arange(0, 300, 30)
    candidates._keep_inside(words[:5].copy(), starts, starts + random.integers(1, 20, 10))
    costs = random.random(40)
    order = np.lexsort((costs, random.random(40), ticks[:40] % 3))
    term_selection._unbeaten(order, ticks[:40] % 3, costs, 4, np.zeros(40, np.int64))
    interval_stream._mark_inside(np.arange(5, 300), starts, starts + 9, np.zeros(295, np.bool_))
    cursor, stops = np.array([0, 3, 6]), np.array([3, 6, 10])
    flags, codes = np.zeros(300, np.uint8), ticks % 3
    partition_spans._flag_rows(codes, 0, 100, starts, starts + 9, cursor, stops, flags, 2)
    chosen = DeletedEvents.chosen([(ordered // 7, words[:300] % 5 == 0)])
    assert chosen is not None
    gone = chosen.places(ordered // 7)
    assert gone.tolist() == np.flatnonzero(words[:300] % 5 == 0).tolist()
    texts = pa.array([f"text {word % 40}" if word % 7 else None for word in words[:300]])
    batch = pa.record_batch([ordered, texts.dictionary_encode(), texts], ["t", "code", "text"])
    mask = np.ones(300, np.bool_)
    mask[gone] = False
    assert without_rows(batch, gone).equals(batch.filter(pa.array(mask)))
    codes = texts.dictionary_encode().indices.fill_null(0).to_numpy().astype(np.int64)
    column = ColumnView(Attribute("s", pa.string(), True, Storage.STRING), batch.column(1), codes)
    column.aggregate(np.array([0, 100, 300]), np.zeros((10, 2), np.int64), 5)
    if not dirty:
        lacking = set(interpretables()) - set(twice)
        elsewhere = ("chronicle.formats.", "chronicle.indexes.")  # tests of their own
        assert not [name for name in lacking if not name.startswith(elsewhere)]


@pytest.mark.parametrize("seed", range(4))
def test_indexes_are_read_as_machine_code_reads_them(twice: dict[str, int], seed: int) -> None:
    random = np.random.default_rng(seed)
    floats = random.choice([-1.5, 0.0, -0.0, np.nan, np.inf, 3e300, 2.5], 400)
    keys = np.empty(400, np.uint64)
    index_kernels.float_keys(floats.view(np.uint64), keys)
    for budget in (0, 30, 10**6):
        index_kernels.settle(random.integers(0, 9, 60).astype(np.uint64), np.arange(60), budget)
    for width in (1, 7, 33, 57):
        positions = random.integers(0, 1 << width, 300)
        words = np.zeros((width * 300 + 63) // 64, np.uint64)
        index_kernels.pack_positions(positions, width, words)
        found = np.empty(200, np.int64)
        index_kernels.unpack_positions(words, width, 50, 250, found)
        assert (found == positions[50:250]).all()
        for base in (0, -40, 7):
            bits = np.zeros(4, np.uint64)
            index_kernels.mark(words, width, 0, 300, base, bits, 250)
            out = np.empty(index_kernels.count_bits(bits), np.int64)
            index_kernels.positions_of_bits(bits, 5, out)
            wanted = {place + base for place in positions.tolist()}
            assert out.tolist() == [place + 5 for place in range(250) if place in wanted]
    for top in (9, 2**40, 2**64 - 1):
        ordered = np.sort(random.integers(0, top, 1300, np.uint64, endpoint=True))
        chunk = pack(ordered.view(np.int64), Encoding.DELTA, force=True)
        block = np.frombuffer(chunk, np.int64)
        for key in (*random.choice(ordered, 9), np.uint64(0), np.uint64(top)):
            assert index_kernels.lower_entry(block, 1300, key) == np.searchsorted(ordered, key)
            right = np.searchsorted(ordered, key, "right")
            assert index_kernels.upper_entry(block, 1300, key) == right
    ticks = np.sort(random.integers(-(2**40), 2**40, 1300))
    block = np.frombuffer(pack(ticks, Encoding.DELTA, force=True), np.int64)
    wanted = np.sort(np.concatenate([random.choice(ticks, 50), random.integers(-9, 9, 5)]))
    for upper in (False, True):
        found = np.empty(wanted.size, np.int64)
        index_kernels.first_not_below(block, 1300, wanted, upper, found)
        assert (found == np.searchsorted(ticks, wanted, "right" if upper else "left")).all()
    index_kernels.ticks_at(block, 1300, np.sort(random.integers(0, 1300, 40)), np.empty(40, int))
    fences = np.concatenate([np.sort(random.integers(0, 99, n, np.uint64)) for n in (4, 1, 7)])
    begins, entries = np.array([0, 4, 5, 12]), np.array([1_700, random.integers(0, 2), 3_300])
    for key in random.integers(0, 99, 9, np.uint64):
        out = np.empty(3)
        lookup._ranks(fences, begins, entries, 512, key, False, out)
        often = random.random((12, 2)) * 99
        lookup._of_a_value(fences, begins, entries, often, key, key + np.uint64(3), out)
        lookup._of_a_value(fences, begins, entries, often, key, key, out)
    wanted_names = {name for name in interpretables() if name.startswith("chronicle.indexes.")}
    assert wanted_names == {name for name in twice if name.startswith("chronicle.indexes.")}


@pytest.mark.parametrize("seed", range(4))
def test_columns_are_packed_as_machine_code_packs_them(twice: dict[str, int], seed: int) -> None:
    """Whatever wraps around: differences of numbers from one end of the integers to the other."""
    random = np.random.default_rng(seed)
    ends = [2**63 - 1, -(2**63), 0, 1]
    for count in (1, 2, 511, 1500):
        for values in (
            random.integers(-(2**63), 2**63 - 1, count), np.cumsum(random.integers(0, 90, count)),
            random.integers(0, 2 + seed, count), random.choice(ends, count), np.full(count, -7),
        ):  # fmt: skip
            given = values.astype(np.int64)
            for encoding in (Encoding.DELTA, Encoding.PACKED):
                chunk = pack(given, encoding, force=True)
                assert chunk is not None
                assert (unpack(memoryview(chunk), encoding, count, 0, count) == given).all()
    words = ["".join(random.choice(list("aé\0z"), n)) for n in random.integers(0, 12, 500)]
    for array in (pa.array(words), pa.array(words, pa.large_string()).slice(7)):
        found = columns.prefix_words(array)
        assert [int(word) for word in found] == [
            int.from_bytes(text.encode()[:8].ljust(8, b"\0"), "big") for text in array.to_pylist()
        ]
    assert {name.split(".")[-1] for name in twice} >= {"_plan", "_pack", "_prefixes"}


# ---------------------------------------------------------------------------- where Python differs


@interpretable()
@kernel
def _summed(values: Any, out: Any) -> Any:
    total = np.int64(0)
    for i in range(values.size):
        out[i] = i
        total += values[i]
    return total


@interpretable()
@kernel
def _squared(values: Any, out: Any) -> Any:
    hits = 0
    for i in range(values.size):
        for j in range(values.size):
            hits += values[i] == values[j]
            out[j] += 1
    return hits


@interpretable()
@kernel
def _nested(values: Any, out: Any) -> Any:
    return _summed(values, out) + 1, 0.5


@kernel
def _high() -> Any:
    return np.uint64(1) << np.uint64(40)


@interpretable()
@kernel
def _others() -> Any:
    return ~_high() & np.uint64(7)


@pytest.fixture(autouse=True)
def fresh() -> None:
    for each in (_summed, _squared, _nested):
        each.interpret(wraps=False)
        each._form = each._has_run = None


@pytest.mark.usefixtures("uncompiled")
def test_what_overflows_is_put_back_and_compiled() -> None:
    out = np.zeros(3, np.int64)
    result = _summed(np.array([1, 2, 3]), out)
    assert (result, type(result), out.tolist()) == (6, int, [0, 1, 2])
    assert _summed._form is None
    out[:] = -1
    assert _summed(np.array([2**63 - 1, 1]), out) == -(2**63)
    assert out.tolist() == [0, 1, -1]
    assert _summed._form is not None


@pytest.mark.usefixtures("uncompiled")
def test_kernels_within_one_run_as_it_does() -> None:
    found = _nested(np.array([1, 2, 3]), np.zeros(3, np.int64))
    assert (found, [type(each) for each in found]) == ((7, 0.5), [int, float])
    assert _summed._form is None is _nested._form
    assert not interpreted.is_running()


@pytest.mark.usefixtures("uncompiled")
def test_kernels_within_one_run_as_it_does_where_they_have_machine_code() -> None:
    assert _high() == 1 << 40
    assert _high._form is not None
    assert _others() == 7
    assert _others._form is None


@pytest.mark.usefixtures("uncompiled")
def test_a_call_that_takes_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreted, "SECONDS_MAX", 0.05)
    values, out = np.arange(3_000), np.zeros(3_000, np.int64)
    assert _squared(values, out) == 3_000
    assert (out == 3_000).all()  # the machine's alone: what Python had counted was put back
    assert _squared._form is not None


def test_what_is_given_up_is_given_up_within_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a call ends before, while or after it is told to: nothing is raised later."""
    monkeypatch.setattr(interpreted, "SECONDS_MAX", 0.002)
    ended = {True: 0, False: 0}

    def busy(until: float) -> None:
        while time.thread_time() < until:
            pass

    watched = interpreted._watched(busy)
    for step in range(200):
        try:
            watched(time.thread_time() + 0.0015 + step * 0.000005)
            ended[True] += 1
        except interpreted._TooSlow:
            ended[False] += 1
        for _ in range(50):
            pass
    assert sum(ended.values()) == 200

    def broken() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        interpreted._watched(broken)()

    def takes_long_and_fails() -> None:
        max(itertools.chain(range(5_000_000), ("x",)))  # holds the interpreter's lock until then

    with pytest.raises(TypeError):
        interpreted._watched(takes_long_and_fails)()


def test_large_inputs_wait_for_machine_code(uncompiled: Uncompiled) -> None:
    values = np.zeros(interpreted.ELEMENTS_MAX, np.int64)
    assert _summed(values, values.copy()) == 0
    assert _summed._form is not None


def test_a_forked_child_compiles_for_itself(
    uncompiled: Uncompiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uncompiled.owner, "_process", -1)
    assert _summed(np.array([1]), np.zeros(1, np.int64)) == 1
    assert _summed._form is not None


def test_where_nothing_can_be_kept_nothing_is_compiled_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uncompiled: Uncompiled
) -> None:
    monkeypatch.setenv("CHRONICLE_CACHE_DIR", "/dev/null/nowhere")
    beside = Beside()
    monkeypatch.setattr(interpreted, "_beside", beside)
    assert _summed(np.array([1]), np.zeros(1, np.int64)) == 1
    assert beside._process is None
    assert _summed._form is None


@pytest.mark.usefixtures("uncompiled")
def test_a_thread_may_compile_first_while_others_do_not() -> None:
    values, out = np.array([1, 2, 3]), np.zeros(3, np.int64)
    with interpreted.compiling_first():
        with interpreted.compiling_first():
            pass
        other = threading.Thread(target=_summed, args=(values, out))
        other.start()
        other.join()
        assert out.tolist() == [0, 1, 2]
        assert _summed._has_run is None
        assert _summed(values, out) == 6
        assert _summed._has_run is not None
    assert _nested(values, out) == (7, 0.5)
    assert _nested._form is None


def test_a_kernel_whose_compiling_was_given_up_runs_as_python(uncompiled: Uncompiled) -> None:
    """As while a server looks whether there is machine code of everything."""
    values, out = np.array([1, 2, 3]), np.zeros(3, np.int64)
    with (
        interpreted.compiling_first(),
        machine_code.compiling_while(lambda: False),
        pytest.raises(machine_code.CompilingStopped),
    ):
        _summed(values[::-1], out)
    assert _summed._form is not None
    assert _summed(values[::-1], out) == 6
    assert not _summed._form.overloads
