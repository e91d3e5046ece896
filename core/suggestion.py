"""The hint of an error about an unknown name: ``; did you mean 'altitude'?``.

Purpose
    :func:`did_you_mean` is the one place that looks for a near name and words the hint, so that
    every interface uses the same words.
"""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, names: Iterable[str], *, quoted: bool = True, prefix: str = "") -> str:
    """The nearest known name as a hint that follows a message; empty when none is near.

    The misspelt name itself is never recommended: where it exists and all the same cannot be
    used, another place has to say why.

    Parameters
    ----------
    name : str
        The misspelt name; compared without regard to case.
    names : iterable of str
        What there is; of names that differ only in case the first is meant.
    quoted : bool
        Whether the name is shown in quotes; words of SQL are shown as they are typed.
    prefix : str
        Stands before the near name, such as the alias of its table and a dot.
    """
    import difflib

    folded: dict[str, str] = {}
    for item in names:
        if item != name:
            folded.setdefault(item.lower(), item)
    near = difflib.get_close_matches(name.lower(), folded, n=1)
    if not near:
        return ""
    shown = prefix + folded[near[0]]
    return f"; did you mean {shown!r}?" if quoted else f"; did you mean {shown}?"
