"""Statements about live queries; ``chronicle.live`` checks what goes beyond names and constants."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from ..core.suggestion import did_you_mean
from ..errors import SqlError
from .conditions.constants import Folder, Kind
from .contract.cancellation import QueryControl
from .contract.live import Given, LiveRequest, LiveStatements
from .contract.result import Result
from .contract.system_tables import LIVE_QUERIES
from .plan.system_plan import live_rows
from .sql.dialect import error_at, position_of, to_text
from .sql.statement_nodes import (
    AlterLive,
    CreateLive,
    CreateRollup,
    DescribeLive,
    DescribeRollup,
    DropLive,
    DropRollup,
    ExplainLive,
    ShowLive,
    ShowRollups,
)

if TYPE_CHECKING:
    from .engine import QueryEngine

__all__ = ["LIVE_CHANGES", "LIVE_READS", "execute_live"]

LIVE_CHANGES = (CreateLive, DropLive, AlterLive)
LIVE_READS = (ShowLive, DescribeLive, ExplainLive, ShowRollups)
ROLLUPS = pa.schema(
    [
        ("name", pa.string()), ("stream", pa.string()), ("window", pa.string()),
        ("columns", pa.string()), ("state", pa.string()), ("watermark", pa.string()),
        ("lag_events", pa.int64()), ("rows", pa.int64()), ("late", pa.int64()),
        ("retention", pa.string()), ("error", pa.string()),
    ]
)  # fmt: skip


def execute_live(engine: QueryEngine, tree: Any, text: str) -> Result:
    live = engine.catalog.live_statements
    seen = set(engine.catalog.streams())
    names = [name for name in live.names() if live.sink_of(name) in seen]
    if isinstance(tree, CreateLive):
        return _create(engine, live, tree, text)
    if isinstance(tree, ShowLive):
        rows = list(live_rows(engine.catalog))
        return Result.of_table(pa.Table.from_pylist(rows, LIVE_QUERIES))
    rollups = [name for name in live.rollups() if name in names]
    if isinstance(tree, ShowRollups):
        shown = [live.rollup_row(name) for name in rollups]
        return Result.of_table(pa.Table.from_pylist(shown, ROLLUPS))
    rolled = isinstance(tree, DropRollup | DescribeRollup)
    what = "roll-up" if rolled else "live query"
    name = _name(rollups if rolled else names, tree, text, what)
    if isinstance(tree, DropLive):
        if name is None:
            return _status(f"there is no {what} {tree.this.name}")
        if name in rollups and not rolled:
            raise error_at(text, position_of(tree.this), f"{name} is a roll-up: DROP ROLLUP {name}")
        live.drop(name, bool(tree.args.get("keep")))
        return _status(f"dropped {what} {name}")
    assert name is not None
    if isinstance(tree, AlterLive):
        return _alter(engine, live, name, tree, text)
    if isinstance(tree, DescribeLive):
        pairs = live.describe(name)
        columns = {"property": [p for p, _ in pairs], "value": [v for _, v in pairs]}
        return Result.of_table(pa.table(columns))
    return Result.of_table(pa.table({"plan": pa.array(live.explain(name), pa.string())}))


def _status(message: str) -> Result:
    return Result.of_table(pa.table({"status": [message]}))


def _name(names: list[str], tree: Any, text: str, what: str) -> str | None:
    wanted = str(tree.this.name)
    if wanted in names:
        return wanted
    found = {name.lower(): name for name in names}.get(wanted.lower())
    if found is None and not tree.args.get("exists"):
        hint = did_you_mean(wanted, names, quoted=False)
        raise error_at(text, position_of(tree.this), f"no {what} {wanted!r}{hint}")
    return found


def _create(engine: QueryEngine, live: LiveStatements, tree: Any, text: str) -> Result:
    args = tree.args
    begin = int(tree.meta["query"])
    start, idle = args.get("start"), args.get("idle")
    request = LiveRequest(
        str(tree.this.name),
        args["query"],
        text,
        text[begin:].strip().removesuffix(";").rstrip(),
        into=None if args.get("into") is None else str(args["into"].name),
        start=start if isinstance(start, str) else _given(engine, start, text) or "first",
        delay=_given(engine, args.get("delay"), text),
        idle=idle if isinstance(idle, str) else _given(engine, idle, text),
        late=args.get("late") or "correct",
        correct_for=_given(engine, args.get("correct_for"), text),
        every=_given(engine, args.get("every"), text),
        options={
            option.this.name.lower(): Given(_option(option.expression), at=position_of(option))
            for option in args.get("options") or ()
        },
        exists_ok=bool(args.get("exists")),
        at=position_of(tree.this),
        rollup=isinstance(tree, CreateRollup),
    )
    made, what = live.create(request), "roll-up" if request.rollup else "live query"
    return _status(f"{f'created {what}' if made else f'{what} exists:'} {request.name}")


def _option(node: Any) -> Any:
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    name = str(node.name)
    number = getattr(node, "is_string", True) is False
    return int(name) if number and name.isdigit() else name


def _given(engine: QueryEngine, node: Any, text: str) -> Given | None:
    if node is None:
        return None
    at = position_of(node)
    executor = engine.executor
    folder = Folder(
        {}, dt.datetime.now(dt.timezone.utc),
        lambda part: executor.constant(to_text(part, text), {}, QueryControl()),
    )  # fmt: skip
    try:
        found = folder.fold(node)
    except SqlError as error:
        raise error_at(text, at, error.reason) from None
    if found.kind is Kind.INTERVAL:
        return Given(None, int(found.value), at)
    if found.kind is Kind.TIME:
        return Given(pa.scalar(int(found.value), pa.timestamp("ns")), at=at)
    if found.kind is Kind.EXACT and found.value == int(found.value):
        return Given(int(found.value), at=at)
    if found.kind is Kind.TEXT:
        return Given(str(found.value), at=at)
    raise error_at(text, at, "expected a constant: a time, an interval or an integer")


def _alter(engine: QueryEngine, live: LiveStatements, name: str, tree: Any, text: str) -> Result:
    action = str(tree.args["action"])
    if action == "pause":
        live.pause(name)
    elif action == "resume":
        live.resume(name)
    else:
        bounds = [_given(engine, tree.args.get(key), text) for key in ("start", "end")]
        live.refresh(name, *(None if given is None else given.value for given in bounds))
    done = {"pause": "paused", "resume": "resumed", "refresh": "refreshed"}[action]
    return _status(f"{done} live query {name}")
