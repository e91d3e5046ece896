"""Processes that have no data frames do not load pandas.

Where it is installed pyarrow loads it with the first scalar or array that is made of Python's
values: a quarter of a second, and 40 MB.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

__all__ = ["do_without_pandas"]


class _PathWithoutPandas(PathFinder):
    """Python's finder of what is installed, which does not find pandas.

    It stands in the other one's place, not before it: so pandas is absent to all that ask, those
    that import it and those that only look whether they could.  An entry in ``sys.modules`` would
    say that to imports, and to DuckDB that pandas is loaded.
    """

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None if fullname == "pandas" else super().find_spec(fullname, path, target)


def do_without_pandas() -> None:
    """Have no library of this process load pandas; it is as if it were not installed."""
    sys.meta_path[:] = [
        _PathWithoutPandas if finder is PathFinder else finder for finder in sys.meta_path
    ]
