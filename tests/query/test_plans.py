"""Plans: the walk in docs/architecture.md is true, nodes are values, operators need one line."""

from __future__ import annotations

import ast
import dataclasses
import pickle
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any, get_args

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import catalog_of
from chronicle.query import engine, operators
from chronicle.query.binding import window_binding
from chronicle.query.contract.explanation import Operator
from chronicle.query.plan import nodes
from chronicle.query.plan.division import divide
from chronicle.query.sql.dialect import parse_statement

from ..patience import wait_for_indexes

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(chronicle.__file__).parent


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with chronicle.open(tmp_path_factory.mktemp("store")) as database:
        times = pa.array(range(1000), pa.int64())
        table = pa.table({"t": times, "x": [float(i % 7) for i in range(1000)]})
        database.create_stream("s", table.schema, "t").append(table)
        yield database


def walk() -> tuple[str, list[tuple[str, str]], list[tuple[str, str]]]:
    """The query of the page, functions in the order of its table, and what else is named."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = page[page.index("## A statement's way") : page.index("### An operator more")]
    steps, others = [], []
    for line in section.splitlines():
        for file, names in re.findall(r"`(query/[\w/]+\.py)`((?:,? `\w+`)+)", line):
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            functions = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
            there = {n.name for n in tree.body if isinstance(n, ast.ClassDef)}
            there |= {n.target.id for n in tree.body if isinstance(n, ast.AnnAssign)}  # type: ignore[union-attr]
            for name in re.findall(r"\w+", names):
                assert name in functions | there, f"{file} has no {name}"
                step = line.startswith("|") and name in functions
                (steps if step else others).append((file, name))
    query = re.search(r"```sql\n(.*?)```", section, re.DOTALL)
    assert query is not None
    return query[1], steps, others


def test_a_query_takes_the_way_that_the_page_describes(tmp_path: Path) -> None:
    text, steps, others = walk()
    assert len(steps) > 20
    assert len(others) > 2
    called: list[tuple[str, str]] = []
    wanted = set(steps)

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)):
            call = (code.co_filename[len(str(PACKAGE)) + 1 :], code.co_name)
            if call in wanted:
                called.append(call)

    rows = 200_000
    table = {
        "timestamp": pa.array(range(0, rows * 1000, 1000), pa.timestamp("ms")),
        "icao24": [f"{i % 40:x}" for i in range(rows)],
        "altitude": [9500.0 - i % 100 if i % 40_000 < 100 else 500.0 for i in range(rows)],
    }
    schema = pa.schema(
        [("timestamp", pa.timestamp("ms")), ("icao24", pa.string()), ("altitude", pa.float64())]
    )
    with chronicle.open(tmp_path / "flights") as database:
        stream = database.create_stream("flights", schema, "timestamp")
        stream.append(pa.table(table, schema=schema))
        stream.create_index("altitude")
        stream.seal()
        wait_for_indexes(database)
        profiler = sys.getprofile()
        sys.setprofile(note)
        try:
            found = list(database.sql(text).batches())
        finally:
            sys.setprofile(profiler)
    assert sum(batch.num_rows for batch in found)
    never = wanted - set(called)
    assert not never, f"the page names what is not called: {never}"
    calls = iter(called)
    late = next((step for step in steps if step not in calls), None)
    assert late is None, f"not called after what stands above it: {late}"


def test_every_leaf_has_an_operator_and_every_node_is_frozen() -> None:
    leaves = set(get_args(nodes.Leaf))
    assert leaves == {nodes.Scan, nodes.TreeAggregate, nodes.EventRows, *operators.OPENERS}
    for node in leaves | set(get_args(nodes.Root)) | {nodes.QueryPlan}:
        assert node.__dataclass_params__.frozen, node
    for one in operators.OPERATORS:
        assert operators.PLANNERS[one.parts.bound] is one.parts.plan
        assert set(one.parts.runs) == set(one.nodes)
    assert set(window_binding._FORMS) == set(operators.OPERATORS[0].written)


HOP = "HOP(s, t, 10, 30)"
PATTERN = "PATTERN (A B) WITHIN 5 DEFINE A AS x > 5, B AS x < 1"
QUERIES = (
    "SELECT avg(x) FROM s WHERE t < 500",
    "SELECT t, x * 2 FROM s WHERE x > 3 AND t BETWEEN 100 AND 700",
    "SELECT t FROM s ORDER BY t DESC LIMIT 5",
    f"SELECT window_start, sum(x) FROM {HOP} GROUP BY window_start",
    f"SELECT window_start, sum(x + 1) FROM {HOP} WHERE x > 2 GROUP BY window_start",
    f"SELECT window_start, t FROM {HOP} WHERE x > 5",
    f"SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a {PATTERN})",
    "SELECT * FROM (SELECT t, x FROM s WHERE t > 9) MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a "
    f"{PATTERN})",
    "SELECT * FROM s MATCH_SITUATIONS (PATTERN (A MEETS B) WITHIN 20 "
    "DEFINE A AS x > 5, B AS x < 1)",
    "SELECT * FROM (SELECT t, x FROM s WHERE t > 9) MATCH_SITUATIONS (ORDER BY t "
    "MEASURES avg(A.x) AS m PATTERN (A MEETS B) DEFINE A AS x > 5, B AS x < 1)",
    "SELECT * FROM s MATCH_SITUATIONS (PATTERN (A) EMIT ON DETECTION DEFINE A AS x < 100)",
    f"SELECT l.a FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a {PATTERN}) AS l "
    "RECENT JOIN s WITHIN 9",
    "SELECT a.b FROM (SELECT t, x FROM s) AS l PERIOD (t, t) RECENT JOIN s MATCH_RECOGNIZE "
    f"(ORDER BY t MEASURES A.t AS b {PATTERN}) AS a WITHIN 500",
)


@pytest.mark.parametrize("text", QUERIES)
def test_a_plan_that_was_pickled_gives_the_rows(db: Any, text: str) -> None:
    made = catalog_of(db).engine
    plan = made.plan(parse_statement(text), text)
    (part,) = divide(plan, catalog_of(db).snapshot, lambda size: 1).parts
    again = pickle.loads(pickle.dumps(part)).plan
    expected = db.sql(text).arrow()
    assert made.run_plan(again).arrow().equals(expected)
    assert expected.num_rows


@pytest.mark.parametrize("text", QUERIES)
def test_explain_makes_the_plan_that_a_run_takes(
    db: Any, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[nodes.QueryPlan] = []
    plain = engine.Execution

    def noted(plan: nodes.QueryPlan, *rest: Any) -> Any:
        plans.append(plan)
        return plain(plan, *rest)

    monkeypatch.setattr(engine, "Execution", noted)
    result = db.sql(text)
    rows = result.arrow().num_rows
    planned, analyzed = db.explain(text), db.explain(text, analyze=True)
    kinds = [shape(plan) for plan in plans]
    assert kinds[0] == kinds[1] == kinds[2]
    assert analyzed.analyzed
    names = [operator.name for operator in analyzed.operators()]
    assert names == [operator.name for operator in planned.operators()]
    if isinstance(plans[0].root, nodes.PassThrough):  # without the executor
        assert names == [operator.name for operator in result.plan.operators()]
        figures = dict(analyzed.root.figures)
        assert figures.get("rows", figures.get("windows")) == rows


def shape(plan: nodes.QueryPlan) -> list[Any]:
    root = plan.root
    if isinstance(root, nodes.Relational):
        return [nodes.Relational, root.sql, *(type(leaf) for _, leaf in root.inputs)]
    if isinstance(root, nodes.PassThrough):
        return [nodes.PassThrough, root.columns, type(root.input)]
    return [type(root)]


@pytest.mark.parametrize("mode", ["", "ALL ROWS PER MATCH"])
@pytest.mark.parametrize(
    ("columns", "passes"),
    [("*", True), ("m.*", True), ("*, a", True), ("a, *", True), ("*, *", True), ("a AS b", True),
     ("* REPLACE (1 AS a)", False), ("*, a + 1", False), ("DISTINCT *", False)],
)  # fmt: skip
def test_all_columns_of_an_operator_pass_by_the_executor(
    db: Any, columns: str, passes: bool, mode: str
) -> None:
    """With the names, types, rows and order that it gives where it is asked."""
    source = f"s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS a {mode} {PATTERN}) m"
    text = f"SELECT {columns} FROM {source}"
    made = catalog_of(db).engine
    root = made.plan(parse_statement(text), text).root
    assert isinstance(root, nodes.PassThrough) == passes
    asked = f"SELECT {columns} FROM {source} LIMIT 100000"
    assert isinstance(made.plan(parse_statement(asked), asked).root, nodes.Relational)
    expected = db.sql(asked).arrow()
    assert expected.num_rows > 100
    if passes:
        assert db.sql(text).arrow().equals(expected)


# ------------------------------------------------------------------------- the recipe


@dataclasses.dataclass(frozen=True)
class BoundNumbers:
    count: Any
    schema: pa.Schema = pa.schema([("n", pa.int64())])  # noqa: RUF009
    streams: tuple[str, ...] = ()
    ordered_by: tuple[str, ...] = ("n",)


@dataclasses.dataclass(frozen=True)
class Numbers:
    count: int


class NumbersOperator:
    def __init__(self, node: Numbers, run: Any) -> None:
        self.schema = pa.schema([("n", pa.int64())])
        self._count = node.count

    def batches(self, columns: Any, passing: Any = None) -> Any:
        yield pa.record_batch({"n": pa.array(range(self._count), pa.int64())}).select(
            self.schema.names if columns is None else list(columns)
        )

    def explain(self) -> Operator:
        return Operator("Numbers", (("count", self._count),))


def test_an_operator_more_is_a_binding_a_node_an_operator_and_a_line(
    db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = operators.FromOperator(
        ("numbers",),
        (Numbers,),
        lambda: operators.Parts(
            lambda site: BoundNumbers(site.item.this.expressions[0]),
            BoundNumbers,
            lambda bound, planning: Numbers(planning.folder.fold(bound.count).value),  # type: ignore[arg-type, return-value]
            {Numbers: NumbersOperator},
        ),
    )
    monkeypatch.setitem(operators.BINDERS, "numbers", line.bind)  # type: ignore[arg-type]
    monkeypatch.setattr(operators, "OPERATORS", (*operators.OPERATORS, line))
    monkeypatch.setitem(operators.OPENERS, Numbers, line.open)  # type: ignore[arg-type]
    text = "SELECT sum(n) AS total, count(x) FROM numbers($m) JOIN s ON s.t = n WHERE n > 1"
    assert db.sql(text, {"m": 5}).fetchall() == [(2 + 3 + 4, 3)]
    assert db.sql("SELECT n FROM numbers(3) ORDER BY n").fetchall() == [(0,), (1,), (2,)]
    assert "Numbers" in str(db.explain("SELECT n + 1 FROM numbers(3)"))
