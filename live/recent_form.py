"""Live recency joins: a pair is emitted when both of its rows are known.

::

    a pair                          l and a are known           _time is that of l
    SEMI                            l and one of its a
    LEFT without a partner, ANTI,   l, and every a that ends
    LAST n                          before l

A region reads its live rows, then the archive rows within the distance P before them, the union of
``[l.te - P, l.te)``.  Late events change live rows, and live rows that end within P behind changed
archive rows.  Identity: that of both rows, or of the live row alone.

The rows of both sides are paired by the kernels of the historical join.  They are cached at a
watermark::

    archive rows      | read when a live row needs them    | kept, as they become known
                      ........................... covered   settled
    live rows                                               | kept

*settled*: every archive row that ends before it is known.  *covered*: every known archive row that
ends at or after it is kept, at most ``ARCHIVE_BYTES_MAX``.

``RecentAnalysis`` makes the form of a SELECT: two live queries, and conditions on pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

from ..core.identity import digests, seed_of
from ..core.times import INT64_MAX, half_open, length_text, moved
from ..errors import SqlError
from ..query.binding import recent_binding
from ..query.binding.binder import conjuncts
from ..query.binding.match_binding import BoundMatch
from ..query.binding.recent_binding import BoundRecent, BoundRows, BoundSide, timed
from ..query.binding.scope import is_plain, unwrapped
from ..query.engine import QueryEngine
from ..query.pattern.columns import KeyCodes
from ..query.recent.narrowing import Regions
from ..query.recent.pairs import Events, Pairing, back
from ..query.sql.dialect import canonical, error_at
from ..query.sql.statement_clauses import RecentRelation
from ..store.snapshot import Snapshot
from ..store.tail import ticks_of_column
from ..store.tap import Spans, covering, united
from .analysis import (
    Analysed,
    check_live,
    column_node,
    columns_of,
    folder_of,
    refuse_aggregates,
    refuse_counted,
    refused,
    result_columns,
)
from .changes import Removals, Results, removals_of, spared
from .forms import Form, Moment, StreamForm, chosen, coalesced
from .join_form import (
    PAIRS,
    ROW,
    Pairs,
    PairsQuery,
    Shown,
    key_codes,
    pairs_query,
    plain_columns,
    shown_pairs,
)
from .row_form import RowForm

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Side:
    """``columns`` maps names in the join to result columns; a row ends ``lead`` ticks after its
    result's time and starts at column ``start``, null for a match without events.
    """

    form: Form
    columns: Mapping[str, str]
    start: str
    lead: int
    keys: tuple[str, ...]

    def rows(self, results: Results, codes: KeyCodes) -> TimedRows:
        start = results.columns.column(self.start)
        valid = np.asarray(start.is_valid().to_numpy(), np.bool_)
        ticks = start.cast(pa.int64()).fill_null(0).to_numpy().astype(np.int64)
        names = list(self.columns)
        table = results.columns.select([self.columns[name] for name in names]).rename_columns(names)
        code = key_codes(codes, table, self.keys)
        ids = results.id.combine_chunks() if isinstance(results.id, pa.ChunkedArray) else results.id
        return TimedRows(results.time, ticks, results.time + self.lead, code, valid, ids, table)


_ARRAYS = ("time", "start", "end", "code", "known")


@dataclass(frozen=True)
class TimedRows:
    """Rows of a side; equal ``code`` for equal keys, negative for null; ``known``: has events."""

    time: Ints
    start: Ints
    end: Ints
    code: Ints
    known: Mask
    id: pa.Array
    table: pa.Table

    def __len__(self) -> int:
        return len(self.time)

    def where(self, chosen: Mask) -> TimedRows:
        if chosen.all():
            return self
        mask = pa.array(chosen)
        arrays = {name: getattr(self, name)[chosen] for name in _ARRAYS}
        return replace(self, id=self.id.filter(mask), table=self.table.filter(mask), **arrays)

    def followed_by(self, *more: TimedRows) -> TimedRows:
        parts = [each for each in (self, *more) if len(each)]
        if len(parts) < 2:
            return parts[0] if parts else self
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS
        }
        ids = pa.concat_arrays([part.id for part in parts])
        table = pa.concat_tables([part.table for part in parts]).combine_chunks()
        return replace(self, id=ids, table=table, **arrays)

    def events(self, rows: Ints) -> Events:
        return Events(self.start[rows], self.end[rows], self.code[rows], self.known[rows])

    @property
    def nbytes(self) -> int:
        ticks = 4 * self.time.nbytes + self.known.nbytes
        return int(ticks + self.id.nbytes + self.table.nbytes)


ARCHIVE_BYTES_MAX = 32 << 20
SPARE_ROWS = 1 << 10
"""Above this number, rows are removed only when half of them are obsolete."""


@dataclass
class RecentState:
    """``met``: live rows that have had a partner."""

    watermark: int
    codes: KeyCodes
    live: TimedRows
    archive: TimedRows
    met: Mask
    covered: int
    gone: dict[str, Removals]

    def let_go(self, settled: int, needed: int) -> None:
        waiting = self.live.end > settled
        self.live, self.met = self.live.where(waiting), self.met[waiting]
        alive = (self.archive.start >= needed) & self.archive.known
        dead = len(alive) - int(alive.sum())
        if dead and (len(alive) < SPARE_ROWS or 2 * dead > len(alive)):
            self.archive = self.archive.where(alive)
        if self.archive.nbytes > ARCHIVE_BYTES_MAX and self.covered < settled:
            self.archive = self.archive.where(self.archive.end >= settled)
            self.covered = settled

    @property
    def first(self) -> int | None:
        starts = [int(rows.start.min()) for rows in (self.live, self.archive) if len(rows)]
        return min(starts, default=None)

    @property
    def worn(self) -> bool:
        """Whether most numbered keys have no row any more."""
        rows = len(self.live) + len(self.archive)
        return self.codes.count > 64 * SPARE_ROWS + 4 * rows

    @property
    def nbytes(self) -> int:
        return self.live.nbytes + self.archive.nbytes + self.met.nbytes


@dataclass(frozen=True)
class Recency:
    """Kind (inner, left, semi, anti), distance P in ticks, archive rows per live row, condition."""

    kind: str
    distance: int
    last: int | None
    on: PairsQuery | None

    @property
    def waits(self) -> bool:
        """Whether pairs must wait for all archive rows that end before the live one."""
        return self.last is not None

    @property
    def one_sided(self) -> bool:
        return self.kind in ("semi", "anti")


class RecentForm(Form):
    kind = "recency join"
    appends = False
    incremental = True

    def __init__(
        self,
        live: Side,
        archive: Side,
        recency: Recency,
        shown: Shown,
        fields: tuple[pa.Field, ...],
        seed: bytes,
    ) -> None:
        self.live, self.archive = live, archive
        self.parts = (live.form, archive.form)
        self.recency = recency
        self.columns = tuple(field.name for field in fields)
        self._nothing = pa.schema(fields).empty_table()
        self.streams = tuple(dict.fromkeys((*live.form.streams, *archive.form.streams)))
        self._shown = shown
        self._seed = seed
        self._state: RecentState | None = None
        self._none: Results | None = None

    # -- regions ----------------------------------------------------------------------------------

    def results(self, moment: Moment, low: int, high: int, known: int) -> Results:
        codes = KeyCodes(len(self.live.keys))
        live = self.live.rows(self.live.form.results(moment, low, high, known), codes)
        archive = self._near(moment, live, known, codes)
        pairs = self._pairs(live, archive, np.arange(len(live)), np.arange(len(archive)))
        met = np.zeros(len(live), np.bool_)
        met[pairs.left] = True
        decided = live.end <= self._settled(moment, known)
        if self.recency.waits:
            pairs = pairs.where(decided[pairs.left])
        return self._results(live, archive, pairs, self._alone(met, decided))

    def _settled(self, moment: Moment, known: int) -> int:
        """Tick before which every archive row's end is final."""
        if known >= INT64_MAX:
            return INT64_MAX
        form = self.archive.form
        begin = form.begin(moment, known)
        if isinstance(form, StreamForm) and begin <= known:  # nothing is open without events
            snapshot = moment[form.stream]
            first = snapshot.scan(*half_open(begin, known), [snapshot.schema.time], limit=1)
            ticks = [ticks_of_column(batch.column(0)) for batch in first if batch.num_rows]
            begin = int(ticks[0][0]) if ticks else moved(known, 1)
        return moved(begin, self.archive.lead)

    def _near(self, moment: Moment, live: TimedRows, known: int, codes: KeyCodes) -> TimedRows:
        ends = live.end[live.known]
        regions = Regions.of(back(ends, self.recency.distance), moved(ends, -1))
        near = [
            self._ending(moment, low, high, known, codes)
            for low, high in coalesced(moment, covering(regions.low, regions.high))
        ] or [self._ending(moment, 1, 0, known, codes)]
        return near[0].followed_by(*near[1:])

    def _ending(
        self, moment: Moment, low: int, high: int, known: int, codes: KeyCodes
    ) -> TimedRows:
        lead = self.archive.lead
        ends = (moved(low, -lead), moved(high, -lead)) if low <= high else (1, 0)
        return self.archive.rows(self.archive.form.results(moment, *ends, known), codes)

    # -- pairs ------------------------------------------------------------------------------------

    def _pairs(self, live: TimedRows, archive: TimedRows, ours: Ints, theirs: Ints) -> Pairs:
        """Pairs of given rows that satisfy the join, by start of the archive row."""
        none = np.zeros(0, np.int64)
        if not len(ours) or not len(theirs):
            return Pairs(none, none)
        pairing = Pairing(live.events(ours), archive.events(theirs), self.recency.distance)
        on, last = self.recency.on, 1 if self.recency.one_sided else self.recency.last

        def satisfying(left: Ints, right: Ints) -> Mask:
            assert on is not None
            pairs = Pairs(ours[left], theirs[right])
            time = live.time[pairs.left]
            order = np.argsort(time, kind="stable")
            true = np.zeros(len(time), np.bool_)
            if len(time):
                held = on.of(live.table, archive.table, pairs.where(order), time[order])
                true[order[held.column(ROW).to_numpy()]] = True
            return true

        if last is not None:
            batches = [pairing.newest(last, None if on is None else satisfying)]
        else:
            batches = list(pairing.batches())
        left, right = (
            np.concatenate([none, *(batch[side] for batch in batches)]) for side in (0, 1)
        )
        pairs = Pairs(ours[left], theirs[right])
        return pairs if on is None or last is not None else pairs.where(satisfying(left, right))

    def _alone(self, met: Mask, decided: Mask) -> Ints:
        """Live rows that are results alone: SEMI with a partner, others decided without one."""
        kind = self.recency.kind
        if kind == "inner":
            return np.zeros(0, np.int64)
        return np.flatnonzero(met if kind == "semi" else decided & ~met)

    def _results(self, live: TimedRows, archive: TimedRows, pairs: Pairs, alone: Ints) -> Results:
        if self.recency.one_sided:
            pairs = pairs.where(slice(0))
        if self._none is not None and not len(pairs.left) and not len(alone):
            return self._none
        pairs = pairs.and_alone(alone)
        pairs = pairs.where(np.argsort(live.time[pairs.left], kind="stable"))
        table, time = self._nothing, live.time[pairs.left]
        if len(time):  # else skip the executor
            table, pairs, time = shown_pairs(
                self._shown, self.columns, live.table, archive.table, pairs, time
            )
        named = [live.id.take(pa.array(pairs.left))]
        if not self.recency.one_sided:
            named.append(archive.id.take(pa.array(pairs.right, mask=pairs.right < 0)))
        results = Results(time, digests(self._seed, named), chosen(table, self.columns))
        if not len(results):
            self._none = results
        return results

    # -- steps in order ---------------------------------------------------------------------------

    def advanced(self, moment: Moment, since: int, known: int) -> Results | None:
        state, self._state = self._state, None  # lost if the step fails
        settled = self._settled(moment, known)
        if (
            state is None
            or state.watermark != since
            or state.worn
            or not spared(state.gone, moment, state.first)
        ):
            state = self._rebuilt(moment, since)
        results = self._followed(state, moment, since, known, settled)
        least = moved(self.live.form.begin(moment, known), self.live.lead)
        if self.recency.waits and len(state.live):  # these still need old partners
            least = min(least, int(state.live.end.min()))
        state.let_go(settled, moved(least, -self.recency.distance))
        state.watermark = known
        self._state = state
        return results

    def _followed(
        self, state: RecentState, moment: Moment, since: int, known: int, settled: int
    ) -> Results:
        recency = self.recency
        rows, before = np.arange(len(state.live)), len(state.archive)
        new = self.live.form.closing(moment, since, known)
        if len(new):
            state.live = state.live.followed_by(self.live.rows(new, state.codes))
            state.met = np.concatenate([state.met, np.zeros(len(new), np.bool_)])
        new = self.archive.form.closing(moment, since, known)
        if len(new):
            state.archive = state.archive.followed_by(self.archive.rows(new, state.codes))
        fresh = np.arange(before, len(state.archive))
        decided = state.live.end <= settled
        ours = np.flatnonzero(decided) if recency.waits else np.arange(len(rows), len(state.live))
        near = self._around(state, moment, ours)
        pairs = self._pairs(state.live, state.archive, ours, near)
        if not recency.waits:
            more = self._pairs(state.live, state.archive, rows, fresh)
            pairs = Pairs(*map(np.concatenate, zip(pairs, more, strict=True)))
        met = state.met.copy()
        state.met[pairs.left] = True
        if recency.kind == "semi":
            alone = np.flatnonzero(state.met & ~met)
        else:
            alone = self._alone(state.met, decided)
        return self._results(state.live, state.archive, pairs, alone)

    def _around(self, state: RecentState, moment: Moment, ours: Ints) -> Ints:
        """Archive rows that may be partners of live ones; missing ones are read into the state."""
        ends = state.live.end[ours][state.live.known[ours]]
        if not len(ends):
            return np.zeros(0, np.int64)
        needed = moved(int(ends.min()), -self.recency.distance)
        if needed < state.covered:
            low, high = needed, state.covered - 1
            older = self._ending(moment, low, high, state.watermark, state.codes)
            state.archive, state.covered = state.archive.followed_by(older), needed
        return np.flatnonzero(state.archive.start >= needed)

    def _rebuilt(self, moment: Moment, since: int) -> RecentState:
        settled, codes = self._settled(moment, since), KeyCodes(len(self.live.keys))
        form, lead = self.live.form, self.live.lead
        low, high = moved(settled, 1 - lead), form.closed(since)
        results = form.results(moment, *((low, high) if low <= high else (1, 0)), since)
        live = self.live.rows(results, codes)
        met = np.zeros(len(live), np.bool_)
        if self.recency.kind != "inner" and not self.recency.waits:
            near = self._near(moment, live, since, codes)
            met[self._pairs(live, near, np.arange(len(live)), np.arange(len(near))).left] = True
        high = moved(self.archive.form.closed(since), self.archive.lead)
        archive = self._ending(moment, settled, high, since, codes)
        return RecentState(
            since, codes, live, archive, met, settled, removals_of(moment, self.streams)
        )

    # -- what is known, and what late events change -----------------------------------------------

    def closed(self, watermark: int) -> int:
        return self.live.form.closed(watermark)

    def begin(self, moment: Moment, watermark: int) -> int:
        """The least of live rows that are not known, and of rows that end behind unknown ones."""
        if watermark == INT64_MAX:  # nothing waits
            return INT64_MAX + 1
        waiting = moved(self._settled(moment, watermark), 1 - self.live.lead)
        return min(self.live.form.begin(moment, watermark), waiting)

    def changed(self, moment: Moment, late: Mapping[str, Spans], watermark: int) -> Spans:
        spans = self.live.form.changed(moment, late, watermark)
        shift = self.archive.lead - self.live.lead
        for low, high in self.archive.form.changed(moment, late, watermark):
            span = moved(low, shift + 1), moved(moved(high, shift), self.recency.distance)
            spans = (*spans, span)
        return united(spans)

    @property
    def state_bytes(self) -> int:
        return super().state_bytes + (0 if self._state is None else self._state.nbytes)

    def drop_state(self) -> None:
        self._state = None
        super().drop_state()

    def explain(self, time: pa.DataType) -> list[tuple[str, str]]:
        recency = self.recency
        words = [recency.kind] if recency.kind != "inner" else []
        words += [f"the last {recency.last}"] if recency.last is not None else []
        keys = [f"{a} = {b}" for a, b in zip(self.archive.keys, self.live.keys, strict=True)]
        words.append(", ".join(keys) or "no key")
        closed = "with the later known of a pair"
        if recency.waits or recency.kind == "anti":
            closed = "when all archive rows are known that end before the live one"
        elif recency.kind == "left":
            closed += "; a live row alone when all archive rows are known that end before it"
        lines = [
            ("class", f"{self.kind} ({', '.join(words)})"),
            ("reach", f"{length_text(recency.distance, time)} from the start of an archive row"),
            ("closed", closed),
            ("state", "incremental: rows are kept whose partners may still come; one with late "
             "events, or after a restart, those within reach are read again"),
        ]  # fmt: skip
        for name, side in (("live", self.live), ("archive", self.archive)):
            lines += [(f"{name} {what}", value) for what, value in side.form.explain(time)]
        return lines


@dataclass(eq=False)
class RecentAnalysis:
    engine: Callable[[], QueryEngine]
    snapshot: Callable[[str], Snapshot]
    text: str
    understood: Callable[[Any], Analysed]

    def analyse(self, tree: Any, frozen: Sequence[str]) -> Analysed:
        """The live form; SqlError, with position, where there is none."""
        text = self.text
        item = unwrapped(tree.args["from_"].this, text)
        self._check(tree, item)
        prepared = self.engine().prepared(tree.copy(), text)
        bound = prepared.bound.sites[0].operator
        assert isinstance(bound, BoundRecent)
        streams = prepared.streams
        schema = columns_of(self.engine(), prepared, self.snapshot)
        select = prepared.bound.root.copy()
        made, fields = result_columns(select.expressions, schema, frozen, text, tree.expressions[0])
        select.set("expressions", list(made))  # more are appended
        seed = seed_of(f"{' '.join(streams)} {canonical(tree)}")
        form = self._form(bound, item, select, fields, seed)
        times = {}
        for node, field in zip(made, fields, strict=True):
            column = node.this
            if isinstance(column, exp.Column) and column.name == bound.end:
                times[field.name] = form.live.lead
        return Analysed(form, fields, bound.live.time, times)

    # -- what cannot be live ----------------------------------------------------------------------

    def _check(self, tree: Any, item: Any) -> None:
        text = self.text
        outer = tree.copy()
        over = exp.Table(this=exp.to_identifier(PAIRS, quoted=True))
        outer.args["from_"].set("this", over)
        check_live(outer, text)
        for part in self._items_in(item):
            check_live(exp.select(part.copy()).from_(over.copy()), text)
        refuse_aggregates(tree, text, "a live recency join")
        if not is_plain(tree):
            raise refused(
                text, tree, "a live recency join gives one row for each pair: unnest where it is "
                "read"
            )  # fmt: skip

    def _items_in(self, item: Any) -> Iterator[Any]:
        yield from (item.args[key] for key in ("on", "within", "last") if item.args.get(key))
        for side in (item.this, item.expression):
            inner = unwrapped(side, self.text)
            if isinstance(inner, RecentRelation):
                yield from self._items_in(inner)

    def _refuse(self, item: Any, what: str) -> SqlError:
        return error_at(self.text, item.meta["recent_at"], what)

    # -- the join ---------------------------------------------------------------------------------

    def _form(
        self, bound: BoundRecent, item: Any, select: Any, fields: tuple[pa.Field, ...], seed: bytes
    ) -> RecentForm:
        folder = folder_of(self.engine(), self.text)
        distance = bound.distance(folder)
        if distance is None:
            raise self._refuse(
                item, "without a distance, every archive row would count for ever: a live recency "
                "join ends with WITHIN"
            )  # fmt: skip
        if bound.live.time != bound.archive.time:
            raise self._refuse(
                item, f"the times of the sides are {bound.live.time} and {bound.archive.time}: a "
                "live query reads streams whose times have one type"
            )  # fmt: skip
        relation = select.args["from_"].this.alias_or_name
        greatest = bound.greatest(folder)
        condition, (of_live, of_archive) = _split(bound, select, relation, greatest)
        read = {c.name for c in select.find_all(exp.Column) if c.table == relation}
        if condition is not None:
            read |= {column.name for column in condition.find_all(exp.Column)}
        read |= {name for key in bound.keys for name in key}
        mine, theirs = (tuple(key[side] for key in bound.keys) for side in range(2))
        live = self._side(bound.live, item.this, read, mine, of_live)
        archive = self._side(bound.archive, item.expression, read, theirs, of_archive)
        fields_by_name = {
            field.name: (number, field)
            for number, each in enumerate((bound.live, bound.archive))
            for field in each.fields
        }

        def field_of(column: Any) -> tuple[int, pa.Field] | None:
            own = column.table in (relation, recent_binding.PAIRS)
            return fields_by_name[column.name] if own else None

        on = None
        if condition is not None and bound.kind == "inner" and greatest is None:
            select = select.where(condition.copy(), copy=False)
        elif condition is not None:
            tree = exp.Select().where(condition.copy())
            on = pairs_query(self.engine, self.text, tree, bound.live.time, field_of)
        shown: Any = None
        if select.args.get("where") is None:
            shown = plain_columns(select, field_of)
        if shown is None:
            shown = pairs_query(self.engine, self.text, select, bound.live.time, field_of)
        recency = Recency(bound.kind, distance, greatest, on)
        return RecentForm(live, archive, recency, shown, fields, seed)

    # -- sides ------------------------------------------------------------------------------------

    def _side(
        self, side: BoundSide, node: Any, read: set[str], keys: tuple[str, ...],
        conditions: Sequence[Any],
    ) -> Side:  # fmt: skip
        item = unwrapped(node, self.text)
        columns = {name: own for name, own in side.columns if name in read}
        columns = columns or dict(side.columns[-1:])  # a table needs a column to have rows
        if isinstance(item, RecentRelation):
            form = self._nested(side, item, columns)
            return Side(form, columns, side.start, form.live.lead, keys)
        if isinstance(item, exp.Subquery):
            return self._query(side, item, columns, keys)
        if isinstance(side.source, BoundMatch):
            item = timed(item, str(side.source.compiled.columns.time))
        elif not isinstance(side.source, BoundRows):
            item = timed(item)
        names = dict.fromkeys((*columns.values(), side.start))
        shown = list(map(column_node, names))
        rows = self.understood(exp.select(*shown).from_(item.copy()).where(*conditions)).form
        if isinstance(rows, RowForm):
            rows.hashed = False  # pairs are digests, of few of the rows
        return Side(rows, columns, side.start, 0, keys)

    def _nested(self, side: BoundSide, item: Any, columns: dict[str, str]) -> RecentForm:
        bound = side.source
        names = list(dict.fromkeys((*columns, side.start)))
        shown = [
            exp.alias_(exp.column(name, table=recent_binding.PAIRS, quoted=True), name, quoted=True)
            for name in names
        ]
        select = _over_pairs(*shown)
        fields = tuple(bound.schema.field(name) for name in names)
        return self._form(bound, item, select, fields, seed_of(canonical(item)))

    def _query(
        self, side: BoundSide, item: Any, columns: dict[str, str], keys: tuple[str, ...]
    ) -> Side:
        """A subquery whose rows have their times at fixed offsets from its results' times."""
        analysed = self.understood(item.this)
        refuse_counted(analysed, self.text, item.this)
        start, end = (analysed.times.get(name) for name in (side.start, side.end))
        if start is None or end is None or start > end:
            times = ", ".join(analysed.times) or "select the time, window_start or window_end there"
            raise error_at(
                self.text, item.meta["period_at"], "PERIOD of a live recency join names columns "
                f"at a fixed distance of the time of a result, the start before the end ({times})"
            )  # fmt: skip
        return Side(analysed.form, columns, side.start, end, keys)


def _split(
    bound: BoundRecent, select: Any, relation: str, last: int | None
) -> tuple[Any, tuple[list[Any], list[Any]]]:
    """The condition on pairs, and what the rows of each side must satisfy, which is taken out of
    WHERE.  Only the events of a stream are chosen before they are paired.
    """
    on, where = [bound.condition], select.args.get("where")
    sides: tuple[list[Any], list[Any]] = [], []
    inner = bound.kind == "inner" and last is None
    for number, side in enumerate((bound.live, bound.archive)):
        columns = dict(side.columns)
        events = isinstance(side.source, BoundRows) and side.source.stream is not None
        asked = [side.condition] if side.condition is not None else []
        if not events or (number == 0 and bound.kind in ("left", "anti")):
            on, asked = on + asked, []
        rest: list[Any] = []
        for part in conjuncts(where.this) if where is not None else ():
            read = list(part.find_all(exp.Column))
            mine = all(each.table == relation and each.name in columns for each in read)
            chosen = events and bool(read) and mine and (number == 0 or inner)
            (asked if chosen else rest).append(part)
        if where is not None:
            where = exp.Where(this=exp.and_(*rest, copy=False)) if rest else None
            select.set("where", where)
        for part in asked:
            part = part.copy()
            for each in list(part.find_all(exp.Column)):
                each.replace(column_node(columns[each.name]))
            sides[number].append(part)
    present = [part for part in on if part is not None]
    return exp.and_(*present) if present else None, sides


def _over_pairs(*shown: Any) -> Any:
    table = exp.Table(this=exp.to_identifier(recent_binding.PAIRS, quoted=True))
    return exp.select(*shown).from_(table)
