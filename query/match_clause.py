"""The MATCH_RECOGNIZE clause as the parser sees it.

Purpose
    The dialect hands the parser over here when it meets ``MATCH_RECOGNIZE`` behind a FROM item, and
    takes back a node that carries every part of the clause; row patterns stay text.

Limits
    Reads the clause as sqlglot knows it.  The extensions of this system (WITHIN, EVENT SELECTION,
    SUBSET) are added in this module and nowhere else.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

__all__ = ["parse_match_clause"]


def parse_match_clause(parser: Any) -> exp.MatchRecognize:
    """Read ``MATCH_RECOGNIZE (...) [AS alias]``.

    Parameters
    ----------
    parser : sqlglot.Parser
        Positioned on the keyword; the Chronicle dialect's parser, whose functions are all
        ``exp.Anonymous``.

    Returns
    -------
    exp.MatchRecognize
    """
    return parser.parse_standard_match_recognize()
