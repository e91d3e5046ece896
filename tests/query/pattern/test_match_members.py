"""Members of structs and of JSON in DEFINE and MEASURES, written behind dots."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import chronicle
from chronicle.api.database import Database
from chronicle.core.json_text import JSON
from chronicle.errors import SqlError

DEEP = pa.struct([("c", pa.int64()), ("d", pa.struct([("e", pa.float64())]))])
AT = pa.struct([("b", pa.int64()), ("x", pa.int64()), ("Deep", DEEP), ("l", pa.list_(pa.int64()))])
SCHEMA = pa.schema(
    [("t", pa.int64()), ("k", pa.string()), ("x", pa.int64()), ("at", AT), ("body", JSON)]
)


def event(rng: random.Random, t: int) -> dict[str, Any]:
    deep = rng.choice([None, {"c": rng.randrange(9), "d": {"e": rng.random() * 9}}])
    at = {"b": rng.randrange(9), "x": rng.randrange(9), "Deep": deep, "l": [rng.randrange(9)]}
    body = f'{{"kind": "{rng.choice("uvw")}", "v": {{"x": {rng.randrange(9)}}}}}'
    if rng.random() < 0.1:
        at, body = None, "[]"
    return {"t": t, "k": rng.choice("pq"), "x": rng.randrange(9), "at": at, "body": body}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    rng = random.Random(5)
    with chronicle.open(tmp_path_factory.mktemp("members") / "store") as database:
        stream = database.create_stream("s", SCHEMA, time="t")
        stream.append([event(rng, t) for t in range(600)])
        yield database


def rows(db: Database, clause: str, select: str = "*") -> list[Any]:
    return db.sql(f"SELECT {select} FROM s MATCH_RECOGNIZE ({clause}) AS m").fetchall()


SPELLED = [
    ("A.at.b", "struct_extract(A.at, 'b')"),
    ("A.AT.B", "struct_extract(A.at, 'b')"),
    ('A."at"."b"', "struct_extract(A.at, 'b')"),
    ("(A.at).x", "struct_extract(A.at, 'x')"),
    ("A.at.deep.c", "struct_extract(struct_extract(A.at, 'Deep'), 'c')"),
    ("A.at.Deep.d.e", "struct_extract(struct_extract(struct_extract(A.at, 'Deep'), 'd'), 'e')"),
    ("A.at.l[1]", "struct_extract(A.at, 'l')[1]"),
    ("at.b", "struct_extract(at, 'b')"),
    ("at.x", "struct_extract(at, 'x')"),
    ("at.Deep.d.e", "struct_extract(struct_extract(struct_extract(at, 'Deep'), 'd'), 'e')"),
    ("CAST(A.body.v.x AS BIGINT)", "CAST(json_extract(A.body, '$.v.x') AS BIGINT)"),
    ("CAST(body.v.x AS BIGINT)", "CAST(json_extract(body, '$.v.x') AS BIGINT)"),
]


@pytest.mark.parametrize(("short", "spelled"), SPELLED)
def test_a_member_is_what_the_function_takes_out(db: Database, short: str, spelled: str) -> None:
    forms = [
        "PARTITION BY k ORDER BY t MEASURES {} AS m, FIRST({}) AS f, PREV({}) AS p, max({}) AS n "
        "PATTERN (A+ B) WITHIN 9 EVENT SELECTION SKIP TILL NEXT MATCH DEFINE A AS x > 6, "
        "B AS x < {}",
        "ORDER BY t MEASURES A.t AS a, C.t AS b PATTERN (A B* C) DEFINE A AS x < 7, "
        "C AS x + 1 > {} AND PREV(x) < {}",
    ]
    for form in forms:
        found = rows(db, form.replace("{}", short))
        assert found == rows(db, form.replace("{}", spelled))
        assert found


@pytest.mark.parametrize("member", ["at.b", "at.Deep.c", "at.Deep.d.e", "A.at.b"])
def test_conditions_are_those_of_where(db: Database, member: str) -> None:
    """Of single events, against the executor's own reading of the dots."""
    found = rows(db, f"ORDER BY t MEASURES A.t AS t PATTERN (A) DEFINE A AS {member} > 4", "t")
    plain = member.removeprefix("A.")
    assert found == db.sql(f"SELECT t FROM s WHERE {plain} > 4 ORDER BY t").fetchall()
    assert found


def test_json_members_are_those_of_an_arrow(db: Database) -> None:
    found = rows(db, "ORDER BY t MEASURES A.body.kind AS k, A.body.v AS v, A.body.v.none AS n "
                 "PATTERN (A)")  # fmt: skip
    wanted = "SELECT body -> '$.kind', body -> '$.v', NULL FROM s ORDER BY t"
    assert found == db.sql(wanted).fetchall()
    odd = '{"a\\"b": {"c/d~e": 5}, "f.g": 6}'
    with chronicle.open(Path(db.path).parent / "odd") as other:
        stream = other.create_stream("s", SCHEMA, time="t")
        stream.append([{"t": 1, "body": odd}])
        clause = """ORDER BY t MEASURES A.body."a""b"."c/d~e" AS x, A.body."f.g" AS y PATTERN (A)"""
        assert rows(other, clause) == [("5", "6")]


def test_a_variable_is_a_variable(db: Database) -> None:
    """Called as a column of structs is; and a subset, too."""
    found = rows(db, "ORDER BY t MEASURES at.x AS x, at.at.x AS y, U.at.b AS b PATTERN (AT C) "
                 "SUBSET U = (AT, C) DEFINE AT AS at.x > 5, C AS at.at.x < 5")  # fmt: skip
    spelled = rows(db, "ORDER BY t MEASURES V.x AS x, struct_extract(V.at, 'x') AS y, "
                   "struct_extract(U.at, 'b') AS b PATTERN (V C) SUBSET U = (V, C) DEFINE "
                   "V AS x > 5, C AS struct_extract(V.at, 'x') < 5")  # fmt: skip
    assert found == spelled
    assert found


def test_situations_take_members(db: Database) -> None:
    clause = (
        "SELECT * FROM s MATCH_SITUATIONS (PARTITION BY k ORDER BY t MEASURES A.at.b AS b, "
        "avg(B.at.Deep.c) AS c PATTERN (A BEFORE B) WITHIN 20 DEFINE A AS at.b > 5, "
        "B AS B.at.Deep.d.e < 3)"
    )
    spelled = (
        "SELECT * FROM s MATCH_SITUATIONS (PARTITION BY k ORDER BY t MEASURES "
        "struct_extract(A.at, 'b') AS b, avg(struct_extract(struct_extract(B.at, 'Deep'), 'c')) "
        "AS c PATTERN (A BEFORE B) WITHIN 20 DEFINE A AS struct_extract(at, 'b') > 5, B AS "
        "struct_extract(struct_extract(struct_extract(at, 'Deep'), 'd'), 'e') < 3)"
    )
    found = db.sql(clause).fetchall()
    assert found == db.sql(spelled).fetchall()
    assert found


@pytest.mark.parametrize(
    ("condition", "error"),
    [
        ("A.at.q > 1", r"at has no member 'q'.*\(it has b, x, Deep, l\).*column 95"),
        ("A.at.deep.z > 1", r"at.Deep has no member 'z' \(it has c, d\)"),
        ("A.x.b > 1", "x is BIGINT, which has no member 'b'"),
        ("A.at.l.b > 1", "at.l is .*, which has no member 'b': take an element first"),
        ("A.nothing.b > 1", "no column 'nothing'|'nothing'"),
        ("q.at.b > 1", "q.at.b is neither a column, nor variable.column|unknown pattern variable"),
        ("x.b > 1", "unknown pattern variable 'x'"),
        ("q.b > 1", "unknown pattern variable 'q'"),
    ],
)
def test_what_has_no_members_is_told(db: Database, condition: str, error: str) -> None:
    with pytest.raises(SqlError, match=f"(?s){error}"):
        rows(db, f"ORDER BY t MEASURES A.t AS t PATTERN (A) DEFINE A AS {condition}", "t, t AS u")


def test_a_situation_sees_its_own_members_only(db: Database) -> None:
    with pytest.raises(SqlError, match="B is another situation"):
        db.sql("SELECT * FROM s MATCH_SITUATIONS (ORDER BY t PATTERN (A BEFORE B) WITHIN 9 DEFINE "
               "A AS B.at.b > 1, B AS x > 1)")  # fmt: skip


def test_a_member_is_not_the_column_of_its_name(db: Database) -> None:
    """``at.x`` beside a column ``x``: in live queries of plain rows, and over counted matches."""
    for number, sql in enumerate(
        (
            "SELECT t, at.x FROM s WHERE at.x > 3",
            "SELECT t, s.x FROM s WHERE s.x > 3 AND at.b < 4",
            "SELECT t, z.at.x AS y, z.x FROM s AS z",
        )
    ):
        name = f"live{number}"
        db.create_live(name, sql, idle="never")
        db.run_live()
        net = db.sql(f"SELECT * EXCLUDE (_time, _id, _rev) FROM NET({name}) ORDER BY 1").fetchall()
        known = db.sql(f"{sql} ORDER BY 1").fetchall()
        assert net == known[: len(net)]
        assert len(net) >= len(known) - 1
        db.live(name).drop()
    for total in ("sum(at.x)", "max(at.b)", "sum(s.x)"):
        values = [row for (row,) in db.sql(f"SELECT {total[4:-1]} FROM s").fetchall()]
        kept = [value for value in values if value is not None]
        expected = sum(kept) if total.startswith("sum") else max(kept)
        assert db.sql(f"SELECT {total} FROM s").fetchall() == [(expected,)]
