"""Syntax nodes of our own; :mod:`.dialect` makes them of text.

Statements that are not queries, and FROM items under a clause.
"""

from __future__ import annotations

from sqlglot import exp

__all__ = [
    "AlterLive",
    "AlterStream",
    "CreateIndexOn",
    "CreateLive",
    "CreateRollup",
    "CreateStream",
    "CreateView",
    "DeleteEvents",
    "DescribeLive",
    "DescribeRollup",
    "DescribeStream",
    "DropIndexOn",
    "DropLive",
    "DropRollup",
    "DropStream",
    "DropView",
    "Explain",
    "ExplainLive",
    "MatchRelation",
    "RecentRelation",
    "ShowCreateView",
    "ShowIndexes",
    "ShowLive",
    "ShowRollups",
    "ShowStreams",
    "ShowViews",
    "SituationRelation",
    "StatementNode",
    "UpdateEvents",
]


class StatementNode(exp.Expression):  # type: ignore[misc]
    """Base of the statements that are not queries."""

    arg_types = {"this": False}  # noqa: RUF012


class CreateStream(StatementNode):
    """``this`` name, ``columns`` list of ColumnDef, ``time`` identifier, ``options`` list of EQ.

    With ``query``, which gives the columns, ``columns`` is not there, and ``time`` need not be.
    """

    arg_types = {  # noqa: RUF012
        "this": True,
        "columns": False,
        "time": False,
        "options": False,
        "exists": False,
        "query": False,
    }


class DropStream(StatementNode):
    """``this`` name, ``exists`` whether IF EXISTS was said; ``cascade``: its views go, too."""

    arg_types = {"this": True, "exists": False, "cascade": False}  # noqa: RUF012


class AlterStream(StatementNode):
    """``this`` name, ``action`` as :mod:`.change_clause` says, with what it needs.

    ``column``: the ColumnDef to add, or the identifier of the one meant; ``to``: a new name;
    ``kind``: a new type; ``options``: a list of EQ.
    """

    arg_types = {  # noqa: RUF012
        "this": True, "action": True, "column": False, "to": False, "kind": False,
        "options": False,
    }  # fmt: skip


class CreateView(StatementNode):
    """``this`` name, ``query``; ``replace``, ``exists``: whether there may be one already."""

    arg_types = {"this": True, "query": True, "replace": False, "exists": False}  # noqa: RUF012


class DropView(StatementNode):
    """``this`` name; ``exists``: it need not be there; ``cascade``: what reads it goes, too."""

    arg_types = {"this": True, "exists": False, "cascade": False}  # noqa: RUF012


class ShowViews(StatementNode):
    """Names and queries."""

    arg_types = {}  # noqa: RUF012


class ShowCreateView(StatementNode):
    """``this`` name."""

    arg_types = {"this": True}  # noqa: RUF012


class DeleteEvents(StatementNode):
    """``this`` name of the stream, ``where`` the WHERE clause, if there is one."""

    arg_types = {"this": True, "where": False}  # noqa: RUF012


class UpdateEvents(StatementNode):
    """``this`` name of the stream, ``assignments`` list of EQ, ``where`` the clause or none."""

    arg_types = {"this": True, "assignments": True, "where": False}  # noqa: RUF012


class ShowStreams(StatementNode):
    """Nothing but itself."""


class ShowIndexes(StatementNode):
    """``this`` the stream, when one was named."""


class DescribeStream(StatementNode):
    """``this`` a name or a query."""

    arg_types = {"this": True}  # noqa: RUF012


class CreateIndexOn(StatementNode):
    """``this`` stream, ``column`` identifier, ``options``, ``exists``: IF NOT EXISTS was said."""

    arg_types = {"this": True, "column": True, "options": False, "exists": False}  # noqa: RUF012


class DropIndexOn(StatementNode):
    """``this`` stream, ``column`` identifier, ``exists`` whether IF EXISTS was said."""

    arg_types = {"this": True, "column": True, "exists": False}  # noqa: RUF012


class Explain(StatementNode):
    """``this`` the explained query, ``analyze`` whether it is run."""

    arg_types = {"this": True, "analyze": False}  # noqa: RUF012


class CreateLive(StatementNode):
    """``this`` name, ``query`` the SELECT; the rest as :mod:`.live_clause` says."""

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
    """As CREATE LIVE QUERY, of results that answer for their stream."""


class DropLive(StatementNode):
    """``this`` name, ``exists`` whether IF EXISTS was said, ``keep`` whether KEEP RESULTS was."""

    arg_types = {"this": True, "exists": False, "keep": False}  # noqa: RUF012


class DropRollup(DropLive):
    """``this`` name, ``exists`` whether IF EXISTS was said."""


class AlterLive(StatementNode):
    """``this`` name, ``action`` pause, resume or refresh, ``start`` and ``end`` of a refresh."""

    arg_types = {"this": True, "action": True, "start": False, "end": False}  # noqa: RUF012


class ShowLive(StatementNode):
    """Nothing but itself."""


class ShowRollups(StatementNode):
    """Nothing but itself."""


class DescribeLive(StatementNode):
    """``this`` a live query's name."""

    arg_types = {"this": True}  # noqa: RUF012


class DescribeRollup(DescribeLive):
    """``this`` a roll-up's name."""


class ExplainLive(StatementNode):
    """``this`` a live query's name."""

    arg_types = {"this": True}  # noqa: RUF012


class MatchRelation(exp.Expression):  # type: ignore[misc]
    """A FROM item under MATCH_RECOGNIZE: ``this`` the input, ``match`` the clause."""

    arg_types = {"this": True, "match": True}  # noqa: RUF012

    @property
    def alias(self) -> str:
        """Name of the result, as other clauses refer to it; empty when it has none."""
        return str(self.args["match"].alias)


class SituationRelation(MatchRelation):
    """A FROM item under MATCH_SITUATIONS."""


class RecentRelation(exp.Expression):  # type: ignore[misc]
    """A recency join in FROM: ``this`` the live side, ``expression`` the archive side.

    ``kind``: ``inner``, ``left``, ``semi`` or ``anti``.  ``last``: how many archive rows a live row
    is given at most, a literal or a parameter.  ``on``, ``within``: the condition, the distance.
    """

    arg_types = {  # noqa: RUF012
        "this": True, "expression": True, "kind": True, "last": False, "on": False, "within": False,
    }  # fmt: skip
