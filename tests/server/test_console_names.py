"""Names that the console puts into SQL: bare ones are read as names, wherever it puts them."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
from sqlglot import exp
from sqlglot.dialects import DuckDB

import chronicle
from chronicle.query.sql.dialect import parse_statement

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "web" / "src"
PLACES = (  # of the pages' statements, and where completion puts a name
    "SELECT *\nFROM {0}\nORDER BY {0} DESC\nLIMIT 1000",
    "SELECT * FROM (\nSELECT t, {0} FROM s\n) AS shown\nWHERE {0} >= 3 AND {0} < 4",
    "SELECT {0}, s.{0} FROM {0} AS s WHERE {0} > 0",
    "SELECT avg({0}) AS x FROM {0} JOIN s ON s.t = {0}.t GROUP BY {0}",
    "SELECT s.t, {0} FROM s WHERE {0} >= 1 AND {0} < 2 ORDER BY {0}",
    "DROP VIEW {0}",
    "ALTER STREAM {0} SET (retention = '3 days')",
)


def reserved() -> set[str]:
    """The words that the console quotes."""
    text = (SOURCES / "query" / "names.ts").read_text(encoding="utf-8")
    found = re.search(r"RESERVED.*?`([^`]*)`", text, re.DOTALL)
    assert found is not None
    return set(found[1].split())


def words() -> set[str]:
    """What is a keyword to DuckDB or to the parser, and the words of Chronicle's own clauses."""
    found = {
        word for (word,) in duckdb.sql("SELECT keyword_name FROM duckdb_keywords()").fetchall()
    }
    found |= {word.lower() for word in DuckDB.Tokenizer.KEYWORDS}
    for path in (ROOT / "query").rglob("*.py"):
        found |= {word.lower() for word in re.findall(r'"([A-Z_]{2,})"', path.read_text("utf-8"))}
    return {word for word in found if re.fullmatch(r"[a-z_][a-z0-9_]*", word)}


def misread(word: str, place: str) -> bool:
    """Whether a statement does not have the names that were put into it."""
    try:
        tree = parse_statement(place.format(word))
    except chronicle.SqlError:
        return True
    if not isinstance(tree, exp.Query):
        return False
    columns = [column.name for column in tree.find_all(exp.Column)]
    tables = [table.name for table in tree.find_all(exp.Table)]
    name = word.strip('"')
    return name not in columns or ("FROM {0}" in place and name not in tables)


def test_words_that_are_no_names_are_quoted() -> None:
    wrong = {word for word in words() if any(misread(word, place) for place in PLACES)}
    assert {"select", "range", "values", "match_recognize"} <= wrong
    assert wrong <= reserved()
    assert not {word for word in reserved() for place in PLACES if misread(f'"{word}"', place)}


def test_every_name_in_a_statement_of_the_console_is_quoted() -> None:
    """What a template puts behind a word that a name follows went through ``quoted``."""
    follows = re.compile(
        r"(?:FROM|JOIN|INTO|VIEW|STREAM|INDEX ON|QUERY|ORDER BY|DESCRIBE)\s+(?:\\n)?\$\{([^}]*)\}"
    )
    found = [
        (path.name, name)
        for path in SOURCES.rglob("*.ts*")
        for template in re.findall(r"`[^`]*`", path.read_text(encoding="utf-8"))
        for name in follows.findall(template)
    ]
    assert len(found) >= 5
    assert [each for each in found if not each[1].startswith("quoted(")] == []
