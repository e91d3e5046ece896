"""Plans as values, of EXPLAIN, ``db.explain`` and ``Result.plan``: ``str(plan)`` is the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

STRIP = 60
"""Characters of a stream's history in the text of a plan."""

Detail = str | int | float | bool | None | tuple[str, ...]


@dataclass(frozen=True)
class Regions:
    """What of a stream's history an operator touched.

    Attributes
    ----------
    found : tuple of (int, int, str, int)
        First and last tick, what was done (``replayed``, ``read``, ``skipped``), and number of
        events; in order of time.
    unit : str or None
        Of ticks: s, ms, us, ns; None for integer time.
    cut : bool
        Whether neighbours were merged for drawing.
    lanes : tuple of (str, tuple of (int, int))
        Key and tick ranges of the largest of ``partitions``, where single partitions were read.
    """

    found: tuple[tuple[int, int, str, int], ...] = ()
    unit: str | None = None
    cut: bool = False
    lanes: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    partitions: int = 0

    def strip(self) -> str:
        """A line of characters, one for each sixtieth of the time, and shares of events."""
        if not self.found:
            return ""
        first, last = self.found[0][0], max(one[1] for one in self.found)
        cells, shares = ["·"] * STRIP, dict[str, int]()
        for begin, end, kind, events in self.found:
            shares[kind] = shares.get(kind, 0) + events
            if kind != "skipped":
                at = [(tick - first) * STRIP // (last - first + 1) for tick in (begin, end)]
                for cell in range(at[0], at[1] + 1):
                    cells[cell] = "▒" if kind == "aggregated" else "█"
        whole = max(1, sum(shares.values()))
        summary = ", ".join(
            f"{kind.replace('_', ' ')} {events / whole:.2%}" for kind, events in shares.items()
        )
        return f"{''.join(cells)}  {summary}"

    def to_dict(self) -> dict[str, Any]:
        regions = [list(one) for one in self.found]
        document: dict[str, Any] = {"found": regions, "unit": self.unit, "cut": self.cut}
        if self.lanes:
            lanes = [{"key": key, "found": [list(one) for one in at]} for key, at in self.lanes]
            document |= {"lanes": lanes, "partitions": self.partitions}
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Regions:
        regions = ((int(a), int(b), str(kind), int(n)) for a, b, kind, n in document["found"])
        lanes = (
            (str(lane["key"]), tuple((int(a), int(b)) for a, b in lane["found"]))
            for lane in document.get("lanes", ())
        )
        partitions = int(document.get("partitions", 0))
        return cls(
            tuple(regions), document["unit"], bool(document["cut"]), tuple(lanes), partitions
        )


@dataclass(frozen=True)
class Operator:
    """One step of a plan.

    Attributes
    ----------
    name : str
        ``Scan``, ``TreeAggregate``, or the relational executor's name of the step.
    details, figures : tuple of (str, value)
        Known before running (stream, range, prune, ...), and after ANALYZE (rows, time_ms, ...).
    """

    name: str
    details: tuple[tuple[str, Detail], ...] = ()
    figures: tuple[tuple[str, int | float], ...] = ()
    inputs: tuple[Operator, ...] = ()
    regions: Regions | None = None

    def walk(self) -> Iterator[Operator]:
        yield self
        for below in self.inputs:
            yield from below.walk()

    def to_dict(self) -> dict[str, Any]:
        document: dict[str, Any] = {"operator": self.name}
        document.update({key: list(v) if isinstance(v, tuple) else v for key, v in self.details})
        if self.figures:
            document["figures"] = dict(self.figures)
        if self.regions is not None:
            document["regions"] = self.regions.to_dict()
        if self.inputs:
            document["inputs"] = [below.to_dict() for below in self.inputs]
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Operator:
        apart = ("operator", "figures", "inputs", "regions")
        regions = document.get("regions")
        details = ((key, value) for key, value in document.items() if key not in apart)
        return cls(
            str(document["operator"]),
            tuple((key, tuple(v) if isinstance(v, list) else v) for key, v in details),
            tuple(document.get("figures", {}).items()),
            tuple(cls.from_dict(below) for below in document.get("inputs", ())),
            None if regions is None else Regions.from_dict(regions),
        )

    def _lines(self, prefix: str, last: bool, top: bool, strips: bool) -> Iterator[str]:
        branch = "" if top else ("└─ " if last else "├─ ")
        below = prefix if top else prefix + ("   " if last else "│  ")
        yield f"{prefix}{branch}{self.name}"
        bar = "│  " if self.inputs else "   "
        for key, value in self.details:
            if value is None or value == ():
                continue
            text = ", ".join(value) if isinstance(value, tuple) else str(value)
            yield f"{below}{bar}{key.replace('_', ' ')}: {text}"
        if strips and self.regions is not None and self.regions.found:
            yield f"{below}{bar}history: {self.regions.strip()}"
        if self.figures:
            shown = ", ".join(f"{key.replace('_', ' ')} {_number(v)}" for key, v in self.figures)
            yield f"{below}{bar}actual: {shown}"
        for position, child in enumerate(self.inputs):
            yield from child._lines(below, position == len(self.inputs) - 1, False, strips)


def _number(value: int | float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


@dataclass(frozen=True)
class Plan:
    """The plan of one query.

    Attributes
    ----------
    statement : str
        The text that was planned.
    analyzed : bool
        Whether the query was run for this plan.
    figures : tuple of (str, number)
        ``planning_ms`` and, when analyzed, ``total_ms`` and ``rows``.
    """

    statement: str
    root: Operator
    analyzed: bool = False
    figures: tuple[tuple[str, int | float], ...] = field(default=())

    def operators(self) -> list[Operator]:
        return list(self.root.walk())

    def to_dict(self) -> dict[str, Any]:
        return {
            "statement": self.statement,
            "analyzed": self.analyzed,
            **dict(self.figures),
            "plan": self.root.to_dict(),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Plan:
        apart = ("statement", "analyzed", "plan", "text")
        figures = tuple((key, v) for key, v in document.items() if key not in apart)
        root = Operator.from_dict(document["plan"])
        return cls(str(document["statement"]), root, bool(document["analyzed"]), figures)

    def __str__(self) -> str:
        return self.text()

    def text(self, strips: bool = False) -> str:
        """The tree as text; ``strips``: with a line for what was read of each stream's time."""
        lines = list(self.root._lines("", True, True, strips))
        if self.figures:
            lines.append(
                ", ".join(f"{key.replace('_', ' ')} {_number(v)}" for key, v in self.figures)
            )
        return "\n".join(lines)
