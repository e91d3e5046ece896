"""EXPLAIN for patterns of situations: constraints, triggers, join orders, bounds of endpoints."""

from __future__ import annotations

from ..pattern.compiled import readable_condition
from .compiled import CompiledSituations
from .network import FAR
from .ordering import Statistics, join_orders
from .relations import ALL, describe

__all__ = ["details"]

Detail = tuple[str, str | tuple[str, ...]]


def details(compiled: CompiledSituations) -> tuple[Detail, ...]:
    found: list[Detail] = [("pattern", _constraints(compiled, implied=False) or compiled.names)]
    implied = _constraints(compiled, implied=True)
    if implied:
        found.append(("implied", implied))
    durations = compiled.durations
    if durations.window < FAR:
        found.append(("within", f"{durations.window} ticks, inclusive"))
    if compiled.gap is not None:
        found.append(("gap", f"{compiled.gap} ticks"))
    found.append(("emit", "on detection" if compiled.early else "on completion"))
    if compiled.partition_by:
        found.append(("partition_by", compiled.partition_by))
    found.append(("conditions", tuple(_conditions(compiled))))
    found.append(("triggers", tuple(_triggers(compiled))))
    if len(compiled.names) > 1:
        found.append(("joins", tuple(_joins(compiled))))
        found.append(("bounds", tuple(_bounds(compiled))))
    if compiled.notes:
        found.append(("notes", compiled.notes))
    return tuple(found)


def _constraints(compiled: CompiledSituations, implied: bool) -> tuple[str, ...]:
    names, found = compiled.names, []
    for i in range(len(names)):
        for j in range(i + 1, len(names)):
            written, closed = compiled.allowed[i][j], compiled.implied[i][j]
            mask = closed if implied else written
            if mask != ALL and (not implied or closed != written):
                found.append(f"{names[i]} {describe(mask)} {names[j]}")
    return tuple(found)


def _conditions(compiled: CompiledSituations) -> list[str]:
    texts = []
    durations = compiled.durations
    for i, (name, bound) in enumerate(zip(compiled.names, compiled.conditions, strict=True)):
        least, most = durations.least[i], durations.most[i]
        lasting = ""
        if most < FAR:
            lasting = f", lasting {least} to {most} ticks"
        elif least:
            lasting = f", lasting {least} ticks or more"
        texts.append(f"{name}: {readable_condition(bound, name, [bound.scalar])}{lasting}")
    return texts


def _triggers(compiled: CompiledSituations) -> list[str]:
    found = []
    for i, name in enumerate(compiled.names):
        least, bounded = compiled.durations.least[i], compiled.durations.most[i] < FAR
        if compiled.early:
            start = f"{name} has lasted {least} ticks" if least else f"start of {name}"
            found.append(f"end of {name}" if bounded else start)
        if compiled.ends_count[i] and not (compiled.early and bounded):
            found.append(f"end of {name}")
    return found


def _joins(compiled: CompiledSituations) -> list[str]:
    orders = join_orders(compiled.implied, Statistics.first(compiled.allowed))
    return [" > ".join(compiled.names[i] for i in order) for order in orders]


def _bounds(compiled: CompiledSituations) -> list[str]:
    found = []
    for i, name in enumerate(compiled.names):
        kept = compiled.kept(i)
        shown = "without bound" if kept is None else f"at most {kept} ticks"
        found.append(f"start of {name} to the match: {shown}")
    return found
