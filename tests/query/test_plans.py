"""Plans: the walk in docs/architecture.md is true, nodes are values, operators need one line."""

from __future__ import annotations

import ast
import dataclasses
import pickle
import re
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest

import chronicle
from chronicle.query import engine, operators
from chronicle.query.contract.explanation import Operator
from chronicle.query.plan import nodes
from chronicle.query.plan.division import divide
from chronicle.query.sql.dialect import parse_statement

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def db(tmp_path: Path) -> Any:
    with chronicle.open(tmp_path / "store") as database:
        times = pa.array(range(1000), pa.int64())
        table = pa.table({"t": times, "x": [float(i % 7) for i in range(1000)]})
        database.create_stream("s", table.schema, "t").append(table)
        yield database


def test_the_walk_of_a_query_names_what_is_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    walk = text[text.index("### One pattern query") : text.index("### An operator more")]
    named = re.findall(r"`(query/[\w/]+\.py)`((?:,? `\w+`)+)", walk)
    missing = []
    for file, names in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        there = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        there |= {n.target.id for n in tree.body if isinstance(n, ast.AnnAssign)}  # type: ignore[union-attr]
        missing += [(file, name) for name in re.findall(r"\w+", names) if name not in there]
    assert not missing
    assert len(named) > 25


def test_every_leaf_has_an_operator_and_every_node_is_frozen() -> None:
    leaves = set(get_args(nodes.Leaf))
    assert leaves == {nodes.Scan, nodes.TreeAggregate, *operators.OPENERS}
    for node in leaves | set(get_args(nodes.Root)) | {nodes.QueryPlan}:
        assert node.__dataclass_params__.frozen, node
    bound = {one.bound for one in operators.OPERATORS}
    assert bound == set(operators.PLANNERS)


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
)


@pytest.mark.parametrize("text", QUERIES)
def test_a_plan_that_was_pickled_gives_the_rows(db: Any, text: str) -> None:
    made = db._query_engine()
    plan = made.plan(parse_statement(text), text)
    (part,) = divide(plan, db.snapshot, lambda size: 1).parts
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
    db.sql(text).arrow()
    db.explain(text)
    analyzed = db.explain(text, analyze=True)
    kinds = [shape(plan) for plan in plans]
    assert kinds[0] == kinds[1] == kinds[2]
    assert analyzed.analyzed


def shape(plan: nodes.QueryPlan) -> list[Any]:
    root = plan.root
    if isinstance(root, nodes.Relational):
        return [nodes.Relational, root.sql, *(type(leaf) for _, leaf in root.inputs)]
    if isinstance(root, nodes.PassThrough):
        return [nodes.PassThrough, root.columns, type(root.input)]
    return [type(root)]


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

    def batches(self, columns: Any) -> Any:
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
        lambda site: BoundNumbers(site.item.this.expressions[0]),
        BoundNumbers,
        lambda bound, planning: Numbers(planning.folder.fold(bound.count).value),  # type: ignore[arg-type, return-value]
        {Numbers: NumbersOperator},
    )
    monkeypatch.setitem(operators.BINDERS, "numbers", line.bind)  # type: ignore[arg-type]
    monkeypatch.setitem(operators.PLANNERS, line.bound, line.plan)  # type: ignore[arg-type]
    monkeypatch.setitem(operators.OPENERS, Numbers, NumbersOperator)  # type: ignore[arg-type]
    text = "SELECT sum(n) AS total, count(x) FROM numbers($m) JOIN s ON s.t = n WHERE n > 1"
    assert db.sql(text, {"m": 5}).fetchall() == [(2 + 3 + 4, 3)]
    assert db.sql("SELECT n FROM numbers(3) ORDER BY n").fetchall() == [(0,), (1,), (2,)]
    assert "Numbers" in str(db.explain("SELECT n + 1 FROM numbers(3)"))
