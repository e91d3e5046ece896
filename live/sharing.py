"""Assignment of live patterns to groups that are searched together (``pattern_group``).

A new query processes the history alone and joins its group when it has caught up.  Lock order:
membership, groups, queries.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import ChronicleError
from ..query.pattern.compiled import CompiledMatch
from ..store.stream import EventStream
from .bank.symbols import Card, card_of, why_alone
from .definition import LiveDefinition
from .forms import Form, Moment
from .pattern_form import PatternForm
from .pattern_group import GroupKey, Member, PatternGroup
from .query import LiveQuery, error_text
from .sink import Mark
from .sources import EVENTS_PER_STEP, Sources, Views

logger = logging.getLogger("chronicle.live")

EVENTS_PER_PLAN = 20_000
"""Events that a bank searches in the minimum time of planning one query."""
BARRED_SECONDS = 60.0
"""Time before a failed group is made again."""


def why_apart(definition: LiveDefinition, form: Form) -> str:
    """Why a live query runs alone; empty if it can share."""
    if not isinstance(form, PatternForm):
        return "only patterns of one stream are searched together"
    compiled: CompiledMatch = form.compiled
    if compiled.within is None:
        return "it has no WITHIN"
    if definition.correct_for is not None:
        return "LATE CORRECT FOR"
    if definition.limited:
        return "limits of its own"
    skip = compiled.clause.skip
    if skip is not None and skip.mode not in ("past last", "next"):
        return "AFTER MATCH SKIP TO a variable"
    return why_alone(compiled)


def card_of_query(definition: LiveDefinition, form: Form) -> Card | None:
    """The card of a live query; None if it cannot share."""
    if why_apart(definition, form):
        return None
    assert isinstance(form, PatternForm)
    return card_of(form.compiled)


@dataclass(eq=False)
class Sharing:
    source: Callable[[str], EventStream]
    sink: Callable[[str], EventStream]
    opened: Callable[[str], LiveQuery]
    views: Views
    _groups: dict[GroupKey, PatternGroup] = field(default_factory=dict, init=False)
    _group_of: dict[str, PatternGroup] = field(default_factory=dict, init=False)
    _barred: dict[GroupKey, float] = field(default_factory=dict, init=False)
    _moving: threading.RLock = field(default_factory=threading.RLock, init=False)
    _owed: set[str] = field(default_factory=set, init=False)
    """Queries that left a group whose mark still counts as theirs in their sink."""
    apart: dict[str, None] = field(default_factory=dict, init=False)

    def group_of(self, name: str) -> PatternGroup | None:
        return self._group_of.get(name)

    @property
    def groups(self) -> list[PatternGroup]:
        return [group for group in list(self._groups.values()) if group.members]

    def at_work(self) -> tuple[list[str], list[PatternGroup]]:
        """Queries that run alone, and groups, as an atomic snapshot."""
        with self._moving:
            return list(self.apart), self.groups

    # -- at the beginning -------------------------------------------------------------------------

    def resume(self, definitions: Iterable[LiveDefinition]) -> None:
        waiting: dict[GroupKey, list[Member]] = {}
        for definition in definitions:
            self.apart[definition.name] = None
            try:
                member = self._member(definition)
            except ChronicleError:  # reported when it is opened
                member = None
            if member is not None:
                key = _key(definition, member.card)
                waiting.setdefault(key, []).append(member)
        for key, members in waiting.items():
            try:
                self._begin(key, members)
            except Exception as error:  # they continue alone
                self._bar(key, error)

    def _member(self, definition: LiveDefinition) -> Member | None:
        card = Card.from_json(definition.card)
        if card is None or definition.paused or definition.dropping or definition.webhook:
            return None
        (source,) = definition.sources
        if not card.fits(self.source(source).schema.arrow):
            return None
        sink = self.sink(definition.sink)
        marks = sink.marks()
        stored = marks.get(definition.name)
        if stored is None:
            return None
        mark = Mark.of(stored, definition.sources)
        if mark.group:
            mark = _further(mark, marks.get(mark.group), definition.sources)
        return None if mark.watermark is None else Member(definition, card, mark, sink)

    def _begin(self, key: GroupKey, members: list[Member]) -> None:
        """A group at its least advanced member's mark."""
        stream = self.source(key.source)
        sources = Sources({key.source: stream}, self.views)
        moment = sources.look()
        snapshot = moment[key.source]
        members.sort(key=lambda member: _watermark(member.mark))
        newest = _watermark(members[-1].mark)
        held: dict[int, Mapping[str, int]] = {}
        able = []
        for member in members:
            mark, at = member.mark, _watermark(member.mark)
            if at not in held:
                held[at] = Sources.events(moment, at)
                behind = snapshot.events_between(at + 1, newest + 1) > EVENTS_PER_STEP
                if behind:
                    held[at] = {}
            if mark.events == held[at]:  # no late events since, and not far behind
                able.append(member)
        if not able:
            return
        base = able[0].mark
        able = [
            m for m in able
            if all(m.mark.positions.get(n, 0) >= p for n, p in base.positions.items())
        ]  # fmt: skip
        group = PatternGroup(key, sources, self.opened)
        with group.lock:
            joining = [replace(m, mark=m.mark.at(base)) for m in able]
            group.join(joining, base, moment)
            group.doubt(newest)
        self._take(group, [member.definition.name for member in able])

    def _take(self, group: PatternGroup, names: Iterable[str]) -> None:
        self._groups[group.key] = group
        for name in names:
            self._group_of[name] = group
            self.apart.pop(name, None)

    # -- steps ------------------------------------------------------------------------------------

    def step(self, group: PatternGroup) -> bool:
        """One step of a group; whether there may be more to do."""
        failed: dict[str, tuple[Exception, Mark]] = {}
        ended: Exception | None = None
        more = True
        with group.lock:
            if not group.members:
                return False
            try:
                more, failed = group.step()
            except Exception as error:
                ended = error
        if failed or ended is not None:
            with self._moving, group.lock:
                if ended is not None:
                    self._end(group, ended)
                for name, (why, mark) in failed.items():
                    if name in self._group_of:  # not dropped meanwhile
                        self._separate({name: mark})
                        self.opened(name).fail(why)
        return more

    def _end(self, group: PatternGroup, error: Exception) -> None:
        self._groups.pop(group.key, None)
        names = list(group.members)
        self._bar(group.key, error)
        self._separate(self._released(group, names))

    def _separate(self, left: Mapping[str, Mark]) -> None:
        """Let members that have left their group continue alone, at their marks."""
        for name, mark in left.items():
            self._group_of.pop(name, None)
            self.apart[name] = None
            self.opened(name).part(mark)

    def _released(self, group: PatternGroup, names: Sequence[str]) -> dict[str, Mark]:
        """Remove members from a group; returns their progress."""
        left: dict[str, Mark] = {}
        for name in names:
            left[name] = replace(group.mark_of(name), group="")
        try:
            group.leave(names)
        except Exception:  # a sink failed: its earlier marks remain
            logger.warning("marks of live patterns were not left", exc_info=True)
            self._owed.update(names)
        return left

    def _bar(self, key: GroupKey, error: Exception) -> None:
        expected = isinstance(error, ChronicleError)
        logger.warning(
            "live patterns of %s are searched by themselves: %s", key.source, error_text(error),
            exc_info=not expected,
        )  # fmt: skip
        self._barred[key] = time.monotonic() + BARRED_SECONDS

    def goal(self, query: LiveQuery) -> PatternGroup | None:
        """The group that a query running alone should join."""
        definition = query.definition
        if query.card is None or not query.active:
            return None
        key = _key(definition, query.card)
        if time.monotonic() < self._barred.get(key, 0.0):
            return None
        group = self._groups.get(key)
        if group is None:
            sources = Sources({key.source: self.source(key.source)}, self.views)
            group = self._groups[key] = PatternGroup(key, sources, self.opened)
        return group

    def goal_of(self, query: LiveQuery) -> tuple[Moment, int] | None:
        """Snapshots and watermark that bring a query level with its group; None: everything."""
        group = self.goal(query)
        if group is None or not group.members:
            return None
        mark, mine = group.mark, query.mark
        if mine.watermark is not None and (
            mine.watermark > _watermark(mark)
            or any(p > mark.positions.get(n, 0) for n, p in mine.positions.items())
        ):
            return None
        return (group.moment, _watermark(mark)) if _at(group.moment, mark) else None

    def start(self, queries: Iterable[LiveQuery]) -> None:
        """Let new queries process the history together, where that is cheaper."""
        for group, some in self._by_group(query for query in queries if query.blank):
            with self._moving, group.lock:
                if group.members:
                    continue
                moment = group.sources.look()
                snapshot = moment[group.key.source]
                span, watermark = snapshot.time_range, group.watermark()
                if span is None or watermark is None or (
                    snapshot.count > len(some) * EVENTS_PER_PLAN
                ):  # fmt: skip
                    continue
                before = min(span[0] - 1, watermark)
                mark = Mark(
                    {group.key.source: snapshot.version}, before, Sources.events(moment, before)
                )
                self._join(group, some, mark, moment)

    def join(self, queries: Iterable[LiveQuery]) -> None:
        """Let queries that have caught up with their group join it."""
        for group, some in self._by_group(query for query in queries if query.settled):
            with self._moving, group.lock:
                mark, moment = group.mark, group.moment
                if not group.members:
                    mark, moment = some[0].mark, some[0].moment
                able = [q for q in some if _same(q.mark, mark) and _at(moment, mark)]
                if not able:
                    continue
                self._join(group, able, mark, moment)

    def _by_group(
        self, queries: Iterable[LiveQuery]
    ) -> Iterable[tuple[PatternGroup, list[LiveQuery]]]:
        queries_by_group: dict[PatternGroup, list[LiveQuery]] = {}
        for query in queries:
            group = self.goal(query)
            if group is not None:
                queries_by_group.setdefault(group, []).append(query)
        return queries_by_group.items()

    def _join(
        self, group: PatternGroup, queries: Sequence[LiveQuery], mark: Mark, moment: Moment
    ) -> None:
        with contextlib.ExitStack() as held:
            able = []
            for query in queries:
                held.enter_context(query.holding())
                if query.active and query.definition.name in self.apart:
                    able.append(query)
            members = [
                Member(q.definition, q.card, q.mark.at(mark), q.sink.stream)
                for q in able
                if q.card is not None
            ]
            if not members or not self._all_marked():
                return
            try:
                group.join(members, mark, moment)
            except Exception as error:  # they continue alone
                self._bar(group.key, error)
                self._released(group, [m.definition.name for m in members if m.definition.name
                                       in group.members])  # fmt: skip
                return
            for query in able:
                query.share(group)
            self._take(group, [query.definition.name for query in able])

    def _all_marked(self) -> bool:
        """Write the marks that are owed; whether all are written."""
        for name in list(self._owed):
            query = self.opened(name)
            try:
                with query.holding():
                    query.leave_mark()
            except Exception:  # the sink still fails
                return False
            self._owed.discard(name)
        return True

    def leave(self, name: str) -> None:
        with self._moving:
            group = self._group_of.get(name)
            if group is None:
                return
            with group.lock:
                if name not in group.members:  # it has failed, and the step separates it
                    return
                try:
                    self._separate(group.leave([name]))
                except Exception as error:  # the group's mark must no longer count for it
                    self._end(group, error)

    def forget(self, name: str) -> None:
        with self._moving:
            self.leave(name)
            self._group_of.pop(name, None)
            self.apart.pop(name, None)
            self._owed.discard(name)

    # -- for people -------------------------------------------------------------------------------

    def explain(self, name: str, query: LiveQuery) -> list[tuple[str, str]]:
        if not isinstance(query.form, PatternForm):
            return []
        why = why_apart(query.definition, query.form)
        if why:
            return [("search", f"by itself: {why}")]
        group = self._group_of.get(name)
        if group is None:
            return [("search", "by itself until it has caught up, then with others of the stream")]
        return group.describe()

    def status(self, name: str) -> dict[str, Any] | None:
        group = self._group_of.get(name)
        if group is None:
            return None
        with group.lock:
            return group.status(name) if name in group.members else None


def _key(definition: LiveDefinition, card: Card) -> GroupKey:
    (source,) = definition.sources
    return GroupKey(
        source, card.partition_by, definition.delay, definition.idle_ms, definition.correct
    )


def _watermark(mark: Mark) -> int:
    assert mark.watermark is not None
    return mark.watermark


def _further(mark: Mark, group: Any, sources: tuple[str, ...]) -> Mark:
    """A member's mark with the group's progress, if that is further."""
    if group is None:
        return mark
    other = Mark.of(group, sources)
    if other.watermark is None or mark.watermark is None or other.watermark < mark.watermark:
        return mark
    return mark.at(other)


def _same(mark: Mark, other: Mark) -> bool:
    return mark.positions == other.positions and mark.watermark == other.watermark


def _at(moment: Any, mark: Mark) -> bool:
    return {name: snapshot.version for name, snapshot in moment.items()} == mark.positions
