"""Statements of our dialect, at random: most bind and run, some are twisted, some are hostile.

Purpose
    :class:`Grammar` writes SQL from a seed.  Three kinds come out, in about equal parts:

    - *plain*: what docs/sql.md, docs/windows.md and docs/match_recognize.md allow, over the stream
      ``s`` of :mod:`.target`, with every function of the gate's lists;
    - *twisted*: a plain statement in which a token was dropped, doubled, exchanged or replaced by
      something that does not belong there;
    - *smuggling*: a plain statement with hostile text in a place where a generator prints what it
      was given: collations, units, types, names, options, aliases, hints, paths.

Limits
    It aims at what costs *others*: whether an answer is right is for the differential tests.
"""

from __future__ import annotations

import random
import re

from chronicle.query.sql import forms
from chronicle.tests.fuzz.border_streams import TYPES as BORDER_STREAMS
from chronicle.tests.fuzz.border_streams import over

__all__ = ["Grammar"]

COLUMNS = {
    "number": ["x", "d", "t", "s.x", "NULL"],
    "text": ["k", "s.k"],
    "time": ["at"],
    "truth": ["flag"],
    "any": ["t", "k", "x", "d", "at", "flag", "raw"],
}
TYPES = [
    *("INTEGER", "BIGINT", "DOUBLE", "VARCHAR", "DECIMAL(10, 2)", "TIMESTAMP", "DATE", "BOOLEAN"),
    *("HUGEINT", "BLOB", "INTEGER[]", "STRUCT(a INTEGER, b VARCHAR)", "MAP(VARCHAR, INTEGER)"),
    *("TIMESTAMPTZ", "TIME", "INTERVAL", "UTINYINT", "FLOAT", "UUID", "JSON", "BIT", "VARCHAR[3]"),
]
NUMBERS = [
    *("0", "1", "-1", "3", "0.5", "1e308", "-1e-308", "9223372036854775807", "2147483647"),
    *(
        "-9223372036854775808",
        "100000000",
        "1e9",
        "'NaN'::DOUBLE",
        "1000",
        "64",
        "18446744073709551616",
    ),
]
TEXTS = [
    *(
        "''",
        "'a'",
        "'b'",
        "'%'",
        "'a%'",
        "'2026-01-01'",
        "'day'",
        "'1'",
        "'x''y'",
        "'\\'",
        "'ü€😀'",
    ),
    *("'[1, 2]'", "'{\"a\": 1}'", "'(a|b)*'", "'%Y-%m-%d'", "'%1000000000d'", "repeat('a', 1000)"),
]
CALLS = {
    "number": [
        *(
            "abs({number})",
            "round({number}, 1)",
            "{number} + {number}",
            "{number} * 2",
            "-{number}",
        ),
        *("length({text})", "extract(HOUR FROM {time})", "year({time})", "list_sum({list})"),
        *("CASE WHEN {truth} THEN {number} ELSE 0 END", "greatest({number}, {number})"),
        *("sqrt(abs({number}))", "{number} % 7", "coalesce({number}, 1)", "len({list})"),
        *(
            "CAST({text} AS INTEGER)",
            "TRY_CAST({text} AS DOUBLE)",
            "epoch({time})",
            "{number} // 2",
        ),
        *("(SELECT max(x) FROM s WHERE t < {number})", "strpos({text}, 'a')", "hash({text}) % 5"),
        *("{list}[1]", "{'a': {number}}.a", "date_diff('day', {time}, TIMESTAMP '2026-02-01')"),
    ],
    "text": [
        *("upper({text})", "{text} || {text}", "substr({text}, 1, 2)", "CAST({number} AS VARCHAR)"),
        *("strftime({time}, '%Y-%m')", "replace({text}, 'a', 'b')", "lpad({text}, 5, '*')"),
        *(
            "concat({text}, {number})",
            "array_to_string({list}, ',')",
            "trim({text})",
            "md5({text})",
        ),
        *("regexp_replace({text}, 'a+', 'b')", "format('{}', {number})", "{text} COLLATE NOCASE"),
    ],
    "time": [
        *(
            "date_trunc('hour', {time})",
            "{time} + INTERVAL '1' DAY",
            "time_bucket(INTERVAL '1' DAY, {time})",
        ),
        *(
            "{time} - to_seconds(1)",
            "make_timestamp(2026, 1, 1, 0, 0, 0)",
            "TIMESTAMP '2026-01-01 00:00:10'",
        ),
    ],
    "list": [
        *("[{number}, {number}]", "list_transform([1, 2], q -> q + {number})", "range(3)"),
        *("list_sort({list})", "list_filter({list}, q -> q > 1)"),
        *("list_value({number}, 2)", "{list}[1:2]", "list_distinct({list})"),
    ],
    "truth": [
        *("{number} > {number}", "{text} LIKE 'a%'", "{time} < TIMESTAMP '2026-01-01 00:00:20'"),
        *("{truth} AND {truth}", "NOT {truth}", "{text} IN ('a', 'b')", "{number} IS NULL"),
        *("list_contains({list}, 1)", "{number} BETWEEN 1 AND {number}", "{truth} OR {truth}"),
        *("x IN (SELECT x FROM s WHERE {truth})", "EXISTS (SELECT 1 FROM s o WHERE o.t = s.t)"),
    ],
}
"""Well-typed calls; braces are filled with values of the kind they name."""
LEAVES = {
    "number": ["x", "t", "d", "1", "2.5", "10", "NULL::DOUBLE"],
    "text": ["k", "'a'", "'b c'", "''"],
    "time": ["at", "TIMESTAMP '2026-01-01'"],
    "list": ["[1, 2, 3]", "[x, 1]"],
    "truth": ["flag", "TRUE", "x > 3", "k = 'a'"],
}
FOLDS = [
    *(
        "count(*)",
        "count({number})",
        "sum({number})",
        "avg({number})",
        "min({text})",
        "max({time})",
    ),
    *("count(DISTINCT {text})", "array_agg({number} ORDER BY t)", "string_agg({text}, ',')"),
    *("stddev({number})", "median({number})", "arg_max({text}, {number})", "bool_or({truth})"),
    *(
        "first({number})",
        "last({text})",
        "quantile_cont({number}, 0.5)",
        "approx_count_distinct({text})",
    ),
    *("sum({number}) FILTER (WHERE {truth})", "corr({number}, {number})", "mode({text})"),
]
OPERATORS = ["+", "-", "*", "/", "//", "%", "||", "**", "&", "<<", "^@", "~"]
ZONES = ["'UTC'", "'Europe/Berlin'", "'nowhere'", "INTERVAL '1' HOUR"]
UNITS = ["SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK", "MILLISECOND"]
PAYLOADS = [
    "nocase; create or replace macro main.upper(x) as 'P'; select 1",
    "nocase; create table marker(i int); select 1 --",
    "x'; copy (select 1) to 'out.csv'; select '1",
    "x\"; attach 'out.db' as other; select \"1",
    "year FROM at), current_setting('threads'), extract(year",
    "10, 2)), version(), CAST(2 AS DECIMAL(10",
    "*/ select 1; set threads = 1; /*",
    "$$; pragma disable_verification; select $$",
    "INTEGER); drop view if exists s; --",
    "s.k, (select k from vault_of_others limit 1)",
    "vault_of_others",
    "../../../etc/passwd",
    "\x00",
    "\ud800",
]
SOUP = [
    *(";", "--", "/*", "*/", "'", '"', "$$", "(", ")", "[", "]", "{", "}", ",", ".", "::", "->"),
    *("=>", "MATCH_RECOGNIZE", "PATTERN", "DEFINE", "EXPLAIN", "ANALYZE", "INSERT", "PIVOT"),
    "TABLESAMPLE",
    *("SELECT", "FROM", "WHERE", "COPY", "ATTACH", "PRAGMA", "SET", "CREATE", "MACRO", "COLLATE"),
    *("INTERVAL", "AT TIME ZONE", "OVER", "FILTER", "WITHIN GROUP", "USING", "NATURAL", "LATERAL"),
    *("VALUES", "RECURSIVE", "*", "COLUMNS(*)", "?", "$1", "$name", ":name", "@", "\\", "\u0000"),
]


PATTERNS = ["A B", "A B+", "A X* B", "A (B | X)", "PERMUTE(A, B)", "A B{2,3}?", "(A B)+", "^ A B"]


class Grammar:
    """Statements from a seed.

    Parameters
    ----------
    seed : int
    borders : bool
        Some statements are about the streams of :mod:`.border_streams`.
    """

    def __init__(self, seed: int, *, borders: bool = False) -> None:
        self.random = random.Random(seed)
        self.borders = borders
        self.tame = 1.0  # share of expressions that bind; the others take anything anywhere
        self.scalars = sorted(forms.SCALARS)
        self.aggregates = sorted(forms.AGGREGATES)
        self.windows = sorted(forms.WINDOWS)

    def statement(self) -> str:
        """The next statement."""
        r = self.random
        self.tame = r.choice([1.0, 1.0, 0.7])
        plain = self.plain()
        if self.borders and r.random() < 0.6:
            plain = over(r.choice(list(BORDER_STREAMS)), plain, r)
        kind = r.random()
        if kind < 0.4:
            return plain
        if kind < 0.7:
            return self.twisted(plain)
        return self.smuggling(plain)

    def one(self, *choices: str) -> str:
        return self.random.choice(choices)

    # -- plain ---------------------------------------------------------------------------------

    def plain(self) -> str:
        """A statement that the dialect describes."""
        kind = self.random.random()
        if kind < 0.7:
            return self.query(2)
        if kind < 0.8:
            return f"EXPLAIN {self.one('', 'ANALYZE ')}{self.query(1)}"
        if kind < 0.84:
            return f"DESCRIBE {self.one('s', self.query(1))}"
        if kind < 0.9:
            return f"WITH c AS ({self.query(1)}) SELECT * FROM c LIMIT 5"
        if kind < 0.93:
            return self.one("SHOW STREAMS", "SHOW INDEXES ON s", "DESCRIBE s", "SHOW TABLES")
        if kind < 0.96:
            return f"INSERT INTO s {self.one(self.query(1), 'VALUES (1, NULL)', 'DEFAULT VALUES')}"
        return self.one(
            "CREATE STREAM z (t BIGINT) TIMESTAMP BY t",
            "DROP STREAM s",
            "CREATE INDEX ON s (x)",
            "ALTER STREAM s ADD COLUMN y DOUBLE",
            "DROP INDEX ON s (x)",
        )

    def query(self, depth: int) -> str:
        r = self.random
        if depth and r.random() < 0.12:
            return (
                f"{self.query(0)} {self.one('UNION', 'UNION ALL', 'EXCEPT', 'INTERSECT')}"
                f" {self.query(0)}"
            )
        grouped = r.random() < 0.3
        make = self.aggregate if grouped else lambda: self.item(2)
        items = ", ".join(f"{make()}" for _ in range(r.randint(1, 3)))
        text = f"SELECT {self.one('', '', 'DISTINCT ', '/*+ strategy(replay) */ ')}{items}"
        text += f" FROM {self.source(depth)}"
        if r.random() < 0.5:
            text += f" WHERE {self.truth(2)}"
        if grouped:
            text += f" GROUP BY {self.one('k', 'ROLLUP (k, t)', 'flag', self.scalar(1))}"
            text += self.one("", " HAVING count(*) > 1", f" HAVING bool_or({self.truth(1)})")
        if self.tame < 1 and r.random() < 0.2:
            text += f" QUALIFY {self.truth(1)}"
        if not depth:  # it may stand in a set operation
            return text
        if r.random() < 0.3:
            text += f" ORDER BY {self.one('1', 'ALL', '1 DESC NULLS FIRST')}"
        if r.random() < 0.3:
            text += f" LIMIT {self.one('1', '5', '0', '10%')}{self.one('', ' OFFSET 2')}"
        return text

    def source(self, depth: int) -> str:
        r = self.random
        kind = r.random()
        if kind < 0.4 or not depth:
            return "s"
        if self.tame == 1:
            return self.one(
                f"(SELECT * FROM s WHERE {self.truth(1)}) AS s",
                f"{self.window()} AS s",
                f"{self.match()} AS s",
                "s SEMI JOIN (SELECT t FROM s WHERE x > 3) o USING (t)",
            )
        if kind < 0.5:
            join = self.one(
                "JOIN", "LEFT JOIN", "FULL JOIN", "ASOF JOIN", "SEMI JOIN", "POSITIONAL JOIN"
            )
            return f"s {join} s o {self.one('USING (t)', 'ON s.t = o.t', 'ON s.t >= o.t')}"
        if kind < 0.6:
            return f"({self.query(depth - 1)}) AS s"
        if kind < 0.78:
            return self.window()
        if kind < 0.95:
            return self.match()
        return self.one(
            "range(5) s(t)", "(VALUES (1, 'a')) s(t, k)", "unnest([1, 2]) s(t)", "s, s o"
        )

    def window(self) -> str:
        if self.tame == 1:
            return self.one(
                "TUMBLE(s, t, 10)", "HOP(s, t, 3, 10)", "HOP_ROWS(s, 2, 3)", "SESSION(s, t, 2)"
            )
        size = self.one("10", "1", "0", "-3", "1000000", "INTERVAL '1' DAY", "9223372036854775807")
        return self.one(
            f"TUMBLE(s, t, {size})",
            f"HOP(s, t, {size}, 10)",
            f"HOP(s, t, 3, {size})",
            f"TUMBLE_ROWS(s, {size})",
            f"HOP_ROWS(s, 2, {size})",
            f"SESSION(s, t, {size})",
            f"TUMBLE(s, t, {size}, {self.scalar(0)})",
            "TUMBLE(s, t, 4, 'first')",
        )

    def match(self) -> str:
        r = self.random
        if self.tame == 1:
            return "".join(
                [
                    f"s MATCH_RECOGNIZE ({self.one('', 'PARTITION BY flag ')}ORDER BY t ",
                    f"MEASURES {self.one('A.t', 'CLASSIFIER()')} AS m ALL ROWS PER MATCH ",
                    self.one("", "AFTER MATCH SKIP TO NEXT ROW "),
                    f"PATTERN ({self.one(*PATTERNS)}) {self.one('', 'WITHIN 10 ')}",
                    f"DEFINE A AS {self.one(*LEAVES['truth'])}, B AS {self.condition()})",
                ]
            )
        names = ["A", "B", "C"]
        parts = [
            f"{r.choice(names)}{self.one('', '*', '+', '?', '{2}', '{1,3}', '*?', '{,2}')}"
            for _ in range(r.randint(1, 4))
        ]
        pattern = " ".join(parts)
        pattern = self.one(
            pattern,
            pattern,
            f"({pattern})+",
            " | ".join(parts),
            f"^ {pattern}",
            f"{pattern} $",
            "PERMUTE(A, B, C)",
            f"A [^B] {pattern}",
            "A {- B+ -} C",
            "()",
            "((A*)*)*",
        )
        defines = ", ".join(
            f"{name} AS {self.condition()}"
            for name in names
            if name in pattern and r.random() < 0.8
        )
        return (
            "s MATCH_RECOGNIZE ("
            + self.one("", "PARTITION BY k ", "PARTITION BY flag, k ")
            + self.one("ORDER BY t ", "ORDER BY t ", "", "ORDER BY t, x DESC ")
            + f"MEASURES {self.one('A.t', 'LAST(t)', 'count(*)', 'CLASSIFIER()', 'sum(x)')} AS t "
            + self.one("", "", "ALL ROWS PER MATCH ", "ONE ROW PER MATCH ")
            + self.one("", "", "AFTER MATCH SKIP TO NEXT ROW ", "AFTER MATCH SKIP TO LAST A ")
            + f"PATTERN ({pattern}) "
            + self.one("", "WITHIN 10 ", "WITHIN INTERVAL '1' HOUR ")
            + self.one(
                "", "", "EVENT SELECTION SKIP TILL NEXT MATCH ", "EVENT SELECTION CONTIGUOUS "
            )
            + (f"DEFINE {defines}" if defines else "")
            + ")"
        )

    def condition(self) -> str:
        return self.one(
            "x > PREV(x)",
            "k = 'a'",
            "x > A.x",
            "t - FIRST(A.t) < 5",
            "count(A.*) < 3",
            "TRUE",
            "x BETWEEN 1 AND 5",
            "LAST(x, 1) IS NULL",
            "upper(B.k) = upper(A.k)",
            self.truth(1),
        )

    def item(self, depth: int) -> str:
        kind = self.random.random()
        if kind < 0.15:
            return self.one(
                "*", "t", "k", "COLUMNS(*)", "s.*", "* EXCLUDE (k)", "* REPLACE (1 AS t)"
            )
        if kind < 0.2:
            return self.aggregate()
        if kind < 0.3:
            name = self.one(*self.windows, *self.aggregates)
            frame = self.one("", "ROWS 2 PRECEDING", "RANGE BETWEEN 1 PRECEDING AND CURRENT ROW")
            order = self.one("", "PARTITION BY k ") + self.one("", f"ORDER BY t {frame}")
            return f"{name}({self.arguments(1)}) OVER ({order})"
        return self.scalar(depth)

    def aggregate(self) -> str:
        if self.random.random() < self.tame:
            return self.filled(self.one(*FOLDS), 1)
        call = f"{self.one(*self.aggregates)}({self.one('', 'DISTINCT ')}{self.arguments(1)}"
        call += self.one("", "", " ORDER BY t") + ")"
        return call + self.one("", "", " FILTER (WHERE x > 1)")

    def arguments(self, depth: int) -> str:
        return ", ".join(
            self.scalar(depth) for _ in range(self.random.choice([0, 1, 1, 1, 2, 2, 3]))
        )

    def typed(self, kind: str, depth: int) -> str:
        """An expression of a kind that binds."""
        r = self.random
        if depth <= 0 or r.random() < 0.25:
            return r.choice(LEAVES[kind])
        return self.filled(r.choice(CALLS[kind]), depth - 1)

    def filled(self, call: str, depth: int) -> str:
        return re.sub(r"\{(\w+)\}", lambda hole: self.typed(hole[1], depth), call)

    def scalar(self, depth: int) -> str:
        r = self.random
        if r.random() < self.tame:
            return self.typed(r.choice(list(CALLS)), depth)
        if depth <= 0:
            return r.choice([r.choice(COLUMNS["any"]), r.choice(NUMBERS), r.choice(TEXTS), "NULL"])
        below = depth - 1
        return r.choice(
            [
                lambda: f"{self.one(*self.scalars)}({self.arguments(below)})",
                lambda: f"{self.one(*self.scalars)}({self.arguments(below)})",
                lambda: f"({self.scalar(below)}).{self.one(*self.scalars)}({self.scalar(0)})",
                lambda: f"({self.scalar(below)} {self.one(*OPERATORS)} {self.scalar(below)})",
                lambda: f"CAST({self.scalar(below)} AS {r.choice(TYPES)})",
                lambda: f"TRY_CAST({self.scalar(below)} AS {r.choice(TYPES)})",
                lambda: (
                    f"CASE WHEN {self.truth(below)} THEN {self.scalar(below)}"
                    f" ELSE {self.scalar(below)} END"
                ),
                lambda: f"[{self.scalar(below)}, {self.scalar(0)}]{self.one('', '[1]', '[1:2]')}",
                lambda: f"{{'a': {self.scalar(below)}}}{self.one('', '.a', '.b')}",
                lambda: f"list_transform([1, 2], q -> {self.scalar(below)})",
                lambda: f"[q + 1 for q in [1, 2, x] if q > {self.scalar(0)}]",
                lambda: f"({self.query(0)} LIMIT 1)",
                lambda: f"INTERVAL '{r.randint(-3, 100)}' {r.choice(UNITS)}",
                lambda: f"extract({r.choice(UNITS)} FROM at)",
                lambda: f"at AT TIME ZONE {self.one('k', *ZONES)}",
                lambda: f"{self.scalar(0)} COLLATE {self.one('NOCASE', 'NOACCENT', 'DE')}",
                lambda: self.scalar(0),
            ]
        )()

    def truth(self, depth: int) -> str:
        r = self.random
        if r.random() < self.tame:
            return self.typed("truth", depth)
        if depth <= 0:
            return self.one("flag", "TRUE", "x > 3", "k = 'a'", "t < 10", "k IS NULL")
        below = depth - 1
        return r.choice(
            [
                lambda: (
                    f"{self.scalar(below)} {self.one('=', '<>', '<', '>=', 'IS DISTINCT FROM')}"
                    f" {self.scalar(below)}"
                ),
                lambda: f"{self.truth(below)} {self.one('AND', 'OR')} {self.truth(below)}",
                lambda: f"NOT {self.truth(below)}",
                lambda: (
                    f"{self.scalar(0)} {self.one('IN', 'NOT IN')} "
                    f"({self.scalar(0)}, {self.scalar(0)})"
                ),
                lambda: f"{self.scalar(0)} BETWEEN {self.scalar(below)} AND {self.scalar(0)}",
                lambda: f"k {self.one('LIKE', 'ILIKE', 'SIMILAR TO', 'GLOB')} {r.choice(TEXTS)}",
                lambda: f"{self.scalar(0)} IN ({self.query(0)})",
                lambda: f"EXISTS ({self.query(0)})",
                lambda: self.truth(0),
            ]
        )()

    # -- twisted and smuggling -----------------------------------------------------------------

    def twisted(self, text: str) -> str:
        """A statement in which a few tokens are not what they were."""
        r = self.random
        tokens = re.findall(r"'(?:[^']|'')*'|\"[^\"]*\"|\w+|\s+|.", text, re.DOTALL)
        for _ in range(r.randint(1, 3)):
            at = r.randrange(len(tokens))
            tokens[at : at + 1] = r.choice(
                [
                    [],
                    [tokens[at], " ", tokens[at]],
                    [r.choice(SOUP)],
                    [tokens[at], " ", r.choice(SOUP), " "],
                    [r.choice(tokens)],
                    [tokens[at][: len(tokens[at]) // 2]],
                    [self.scalar(1)],
                    ["(" * r.choice([1, 5, 60]), tokens[at]],
                    [tokens[at], f"[{r.choice(NUMBERS)}]"],
                ]
            ) or [" "]
        return "".join(tokens)

    def smuggling(self, text: str) -> str:
        """A statement with hostile text in a place that is printed as it came."""
        r = self.random
        payload = r.choice(PAYLOADS)
        single = "'" + payload.replace("'", "''") + "'"
        double = '"' + payload.replace('"', '""') + '"'
        quoted = r.choice([single, double])
        place = r.choice(
            [
                f"SELECT 'a' COLLATE {quoted}",
                f"SELECT extract({quoted} FROM at) FROM s",
                f"SELECT 1::DECIMAL({quoted})",
                f"SELECT CAST(1 AS {quoted})",
                f"SELECT INTERVAL '1' {quoted}",
                f"SELECT INTERVAL '1' YEAR TO {quoted}",
                f"SELECT date_trunc({single}, at) FROM s",
                f"SELECT at AT TIME ZONE {quoted} FROM s",
                f"SELECT x AS {double} FROM s",
                f"SELECT {double} FROM s",
                f"SELECT {double}(x) FROM s",
                f"SELECT * FROM {quoted}",
                f"SELECT * FROM s AS {double}",
                f"SELECT * FROM s({double})",
                f"SELECT {{{quoted}: 1}}.{double}",
                f"SELECT * FROM s JOIN BY (TYPE {quoted}) s o USING (t)",
                f"SELECT list_transform([1], {double} -> {double} + 1)",
                f"SELECT strftime(at, {single}) FROM s",
                f"SELECT k LIKE 'a' ESCAPE {single} FROM s",
                f"SELECT * FROM s TABLESAMPLE {quoted}",
                f"SELECT /*+ strategy({quoted}) */ * FROM s",
                f"SELECT count(*) FROM TUMBLE(s, t, {quoted}) GROUP BY window_start",
                f"SELECT * FROM s MATCH_RECOGNIZE (ORDER BY t MEASURES A.t AS {double}"
                f" PATTERN ({double}) DEFINE {double} AS k = {single} COLLATE {quoted})",
                f"DESCRIBE SELECT 'a' COLLATE {quoted}",
                f"EXPLAIN SELECT 'a' COLLATE {quoted}",
                f"INSERT INTO s (t, {double}) VALUES (1, {single} COLLATE {quoted})",
                f"SHOW INDEXES ON {double}",
                f"CREATE STREAM {double} (t BIGINT) TIMESTAMP BY t",
                f"COPY s TO {single}",
                f"ATTACH {single} AS other",
                f"WITH {double} AS MATERIALIZED (SELECT 1) SELECT * FROM {double}",
                f"SELECT sum(x) OVER {double} FROM s WINDOW {double} AS (ORDER BY t)",
                f"SELECT * FROM s ORDER BY k COLLATE {quoted}",
                f"SELECT quantile(x, 0.5 ORDER BY k COLLATE {quoted}) FROM s",
                f"{text} UNION ALL BY NAME SELECT 1 AS {double}",
                f"SELECT * FROM s AT (VERSION => {quoted})",
                f"PREPARE p AS {text}",
                f"{text}; {payload}",
            ]
        )
        return place if r.random() < 0.7 else self.twisted(place)
