"""Clocks of zones in far years, against Python's ``zoneinfo``."""

from __future__ import annotations

import datetime as dt
import random
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from chronicle.core.zones import RULES_S, instants_of_local, local_times

UTC = dt.timezone.utc
EPOCH = dt.datetime(1970, 1, 1)
SECOND = dt.timedelta(seconds=1)


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "Africa/Casablanca", "Australia/Lord_Howe", "Asia/Kolkata"]
)
def test_clocks_in_far_years(zone: str) -> None:
    rng, clocks = random.Random(zone), ZoneInfo(zone)
    seconds = [rng.randrange(RULES_S - 10**8, 253_402_000_000) for _ in range(300)]
    shown = local_times(np.array(seconds), zone).tolist()
    for second, local in zip(seconds, shown, strict=True):
        wall = dt.datetime.fromtimestamp(second, clocks).replace(tzinfo=None)
        assert (wall - EPOCH) // SECOND == local, wall
    back = instants_of_local(np.array(shown), zone, "earliest", "latest").tolist()
    assert sum(a != b for a, b in zip(back, seconds, strict=True)) < 3  # of a double hour


@pytest.mark.parametrize(("year", "spring", "autumn"), [(2040, 25, 28), (2551, 28, 31)])
def test_hours_that_are_skipped_or_twice_in_far_years(year: int, spring: int, autumn: int) -> None:
    """The change is at 01:00 UTC on the last Sunday of March and of October."""
    skipped, twice = dt.datetime(year, 3, spring, 2, 30), dt.datetime(year, 10, autumn, 2, 30)
    walls = np.array([(wall - EPOCH) // SECOND for wall in (skipped, twice)])
    for side, wanted in (
        ("earliest", (dt.datetime(year, 3, spring, 0, 59, 59), twice - dt.timedelta(hours=2))),
        ("latest", (dt.datetime(year, 3, spring, 1), twice - dt.timedelta(hours=1))),
    ):
        found = instants_of_local(walls, "Europe/Berlin", side, side).tolist()  # type: ignore[arg-type]
        assert found == [(instant - EPOCH) // SECOND for instant in wanted]
