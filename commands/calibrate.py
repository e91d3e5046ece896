"""``chronicle calibrate``: measure this machine for the cost models of windows and patterns."""

from __future__ import annotations

import dataclasses

from .connection import connection_of
from .options import StoreOption
from .terminal import say

__all__ = ["calibrate"]


def calibrate(store: StoreOption = None) -> None:
    """Measure what replaying, reading the index tree and reading secondary indexes cost here.

    Takes some seconds, best on an idle machine.  The store keeps the figures; queries over windows
    and row patterns choose their plans by them, instead of by built-in ones.
    """
    connection = connection_of(store, None, None)
    with connection.database("r") as database:
        path = database.path
    from ..query.replay.calibration import calibrate_patterns
    from ..query.replay.cost import save_weights
    from ..query.windows.calibration import calibrate as measure
    from ..query.windows.cost import save_calibration

    found = measure()
    written = save_calibration(path, found.calibration)
    _print("windows", dataclasses.asdict(found.calibration))
    say(
        f"{found.measurements} measurements, mean error {found.error:.0%}; written to {written}",
    )
    weights = calibrate_patterns()
    written = save_weights(path, weights)
    _print("row patterns", dataclasses.asdict(weights))
    say(f"written to {written}")


def _print(title: str, constants: dict[str, float]) -> None:
    print(title)
    for name, nanoseconds in constants.items():
        print(f"  {name:<16}{nanoseconds:>12,.1f} ns")
