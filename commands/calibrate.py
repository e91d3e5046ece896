"""``chronicle calibrate``: measure this machine for the cost model of windows."""

from __future__ import annotations

import dataclasses

from .options import StoreOption
from .place import place_of
from .screen import say

__all__ = ["calibrate"]


def calibrate(store: StoreOption = None) -> None:
    """Measure what replaying and reading the index cost on this machine, and keep it in the store.

    Takes some seconds, best on an idle machine.  Queries over windows choose by these constants;
    without them they use built-in ones.
    """
    place = place_of(store, None, None)
    with place.database("r") as database:
        path = database.path
    from ..query.calibrate import calibrate as measure
    from ..query.windows.cost import save_calibration

    found = measure()
    written = save_calibration(path, found.calibration)
    for name, nanoseconds in dataclasses.asdict(found.calibration).items():
        print(f"{name:<16}{nanoseconds:>12,.1f} ns")
    say(
        f"{found.measurements} measurements, mean error {found.error:.0%}; written to {written}",
    )
