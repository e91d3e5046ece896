"""Syntax nodes of Chronicle: statements that are not queries, and FROM items with a clause."""

from __future__ import annotations

from sqlglot import exp


class StatementNode(exp.Expression):  # type: ignore[misc]
    arg_types = {"this": False}  # noqa: RUF012


class CreateStream(StatementNode):
    """``columns`` are ColumnDefs, ``options`` EQs; with ``query`` there are no ``columns``."""

    arg_types = {  # noqa: RUF012
        "this": True,
        "columns": False,
        "time": False,
        "options": False,
        "exists": False,
        "query": False,
    }


class DropStream(StatementNode):
    """``cascade``: drop dependent views."""

    arg_types = {"this": True, "exists": False, "cascade": False}  # noqa: RUF012


class AlterStream(StatementNode):
    """``action``: of ``statement_clauses``; ``column``: ColumnDef, identifier; ``to``: new name."""

    arg_types = {  # noqa: RUF012
        "this": True, "action": True, "column": False, "to": False, "kind": False,
        "options": False,
    }  # fmt: skip


class CreateView(StatementNode):
    arg_types = {"this": True, "query": True, "replace": False, "exists": False}  # noqa: RUF012


class DropView(StatementNode):
    arg_types = {"this": True, "exists": False, "cascade": False}  # noqa: RUF012


class ShowViews(StatementNode):
    """SHOW VIEWS"""

    arg_types = {}  # noqa: RUF012


class ShowCreateView(StatementNode):
    arg_types = {"this": True}  # noqa: RUF012


class DeleteEvents(StatementNode):
    arg_types = {"this": True, "where": False}  # noqa: RUF012


class UpdateEvents(StatementNode):
    arg_types = {"this": True, "assignments": True, "where": False}  # noqa: RUF012


class ShowStreams(StatementNode):
    """SHOW STREAMS"""


class ShowIndexes(StatementNode):
    """``this``: the stream, optional."""


class DescribeStream(StatementNode):
    """``this``: a name or a query."""

    arg_types = {"this": True}  # noqa: RUF012


class CreateIndexOn(StatementNode):
    arg_types = {"this": True, "column": True, "options": False, "exists": False}  # noqa: RUF012


class DropIndexOn(StatementNode):
    arg_types = {"this": True, "column": True, "exists": False}  # noqa: RUF012


class Explain(StatementNode):
    """``analyze``: the query is run."""

    arg_types = {"this": True, "analyze": False}  # noqa: RUF012


class CreateLive(StatementNode):
    """See ``statement_clauses``."""

    arg_types = {  # noqa: RUF012
        "this": True,
        "query": True,
        "into": False,
        "start": False,
        "delay": False,
        "idle": False,
        "late": False,
        "correct_for": False,
        "every": False,
        "options": False,
        "exists": False,
    }


class CreateRollup(CreateLive):
    """CREATE ROLLUP"""


class DropLive(StatementNode):
    arg_types = {"this": True, "exists": False, "keep": False}  # noqa: RUF012


class DropRollup(DropLive):
    """DROP ROLLUP"""


class AlterLive(StatementNode):
    arg_types = {"this": True, "action": True, "start": False, "end": False}  # noqa: RUF012


class ShowLive(StatementNode):
    """SHOW LIVE QUERIES"""


class ShowRollups(StatementNode):
    """SHOW ROLLUPS"""


class DescribeLive(StatementNode):
    arg_types = {"this": True}  # noqa: RUF012


class DescribeRollup(DescribeLive):
    """DESCRIBE ROLLUP"""


class ExplainLive(StatementNode):
    arg_types = {"this": True}  # noqa: RUF012


class MatchRelation(exp.Expression):  # type: ignore[misc]
    """A FROM item with MATCH_RECOGNIZE: ``this`` is the input, ``match`` the clause."""

    arg_types = {"this": True, "match": True}  # noqa: RUF012

    @property
    def alias(self) -> str:
        return str(self.args["match"].alias)


class SituationRelation(MatchRelation):
    """A FROM item with MATCH_SITUATIONS."""


class RecentRelation(exp.Expression):  # type: ignore[misc]
    """A recency join: ``this`` the live side, ``expression`` the archive side."""

    arg_types = {  # noqa: RUF012
        "this": True, "expression": True, "kind": True, "last": False, "on": False, "within": False,
    }  # fmt: skip
