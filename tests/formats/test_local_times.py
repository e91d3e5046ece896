"""Times of a zone's clocks, against Python's own reading of the time zone database."""

from __future__ import annotations

import datetime as dt
import zoneinfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.errors import InvalidArgument
from chronicle.formats.times import check_zone, instants_of
from chronicle.tests.rounds import rounds

ZONES = (
    "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe",
    "Asia/Kathmandu", "Pacific/Apia", "Africa/Casablanca", "UTC",
)  # fmt: skip
EPOCH = dt.datetime(1970, 1, 1)


def readings(wall: int, zone: str) -> list[int]:
    """The instants at which a zone's clocks showed a time, by PEP 495."""
    naive = EPOCH + dt.timedelta(seconds=wall)
    found = set()
    for fold in (0, 1):
        aware = naive.replace(tzinfo=zoneinfo.ZoneInfo(zone), fold=fold)
        instant = aware.astimezone(dt.UTC)
        if instant.astimezone(zoneinfo.ZoneInfo(zone)).replace(tzinfo=None) == naive:
            found.add(int(instant.timestamp()))
    return sorted(found)


@settings(max_examples=rounds(6, 60), deadline=None)
@given(
    st.sampled_from(ZONES),
    st.lists(st.integers(0, 2_000_000_000 // 900), min_size=1, max_size=200),
    st.sampled_from(["refuse", "earlier", "later"]),
)
def test_every_reading_is_that_of_zoneinfo(zone: str, quarters: list[int], which: str) -> None:
    walls = np.array(quarters, np.int64) * 900
    found = instants_of(walls, zone, which, dates=False)
    for at, wall in enumerate(walls.tolist()):
        expected = readings(wall, zone)
        assert found.skipped[at] == (len(expected) == 0)
        assert found.twice[at] == (len(expected) == 2 and which == "refuse")
        if len(expected) == 1 or (len(expected) == 2 and which != "refuse"):
            assert found.seconds[at] == expected[-1 if which == "later" else 0]


@pytest.mark.parametrize("zone", ZONES)
def test_every_quarter_of_a_year_around_its_changes(zone: str) -> None:
    first = int((dt.datetime(2018, 1, 1) - EPOCH).total_seconds())
    walls = first + np.arange(366 * 96, dtype=np.int64) * 900
    found = instants_of(walls, zone, "later", dates=False)
    odd = [at for at, wall in enumerate(walls.tolist()) if len(readings(wall, zone)) != 1]
    assert np.flatnonzero(found.skipped).tolist() == [
        at for at in odd if not readings(int(walls[at]), zone)
    ]
    twice = [at for at in odd if readings(int(walls[at]), zone)]
    assert not found.twice.any()
    refused = instants_of(walls, zone, "refuse", dates=False)
    assert np.flatnonzero(refused.twice).tolist() == twice
    earlier = instants_of(walls, zone, "earlier", dates=False)
    for at in twice:
        expected = readings(int(walls[at]), zone)
        assert [earlier.seconds[at], found.seconds[at]] == expected


def test_a_date_is_the_first_instant_of_its_day() -> None:
    def begin(zone: str, *day: int) -> dt.datetime:
        wall = np.array([(dt.datetime(*day) - EPOCH).total_seconds()], np.int64)  # type: ignore[arg-type]
        found = instants_of(wall, zone, "refuse", dates=True)
        assert not found.skipped[0]
        assert not found.twice[0]
        return EPOCH + dt.timedelta(seconds=int(found.seconds[0]))

    assert begin("Europe/Berlin", 2018, 7, 1) == dt.datetime(2018, 6, 30, 22)
    # Midnight was skipped in Brazil: the day began at one o'clock, which was 3:00 UTC.
    assert begin("America/Sao_Paulo", 2018, 11, 4) == dt.datetime(2018, 11, 4, 3)
    # In Havana clocks were set back from one to midnight: the day began with the first one.
    assert begin("America/Havana", 2018, 11, 4) == dt.datetime(2018, 11, 4, 4)


def test_beyond_the_calendar_there_is_no_overflow() -> None:
    walls = np.array([-(2**62), 2**62], np.int64)
    found = instants_of(walls, "Europe/Berlin", "refuse", dates=False)
    assert np.all(np.abs(found.seconds - walls) <= 86_400)


@pytest.mark.parametrize("zone", ["Europe/Berln", "", "+25", "CEST/nothing", "../etc/passwd"])
def test_what_is_no_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidArgument, match="name of a time zone"):
        check_zone(zone)


def test_an_offset_is_a_zone() -> None:
    check_zone("+02:00")
    walls = np.array([0, 86_400 * 180], np.int64)
    assert instants_of(walls, "+02:00", "refuse", dates=False).seconds.tolist() == [
        -7200,
        86_400 * 180 - 7200,
    ]
