"""Descents toward landing in a day of real flights, confirmed by their altitudes.

    python docs/landing.py ../shared/data/opensky-switzerland.json.gz [plot.png]

Per aircraft: an event in cruise above 36,000 feet, a descent that only ever sinks or holds, an
event below 32,000 feet, all within 15 minutes.  (The data covers upper airspace: nothing is below
30,000 feet, so a landing shows as the beginning of its descent.)  Every match is checked against
the raw events.  With a second argument and matplotlib, draws the profiles.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile

import pyarrow as pa
import pyarrow.compute as pc

import chronicle

QUERY = """
SELECT * FROM flights MATCH_RECOGNIZE (
  PARTITION BY icao24 ORDER BY timestamp
  MEASURES LAST(CRUISE.timestamp) AS top, CRUISE.altitude AS top_altitude,
           GROUND.timestamp AS down, GROUND.altitude AS down_altitude,
           count(DESCENT.*) + 2 AS events, array_agg(altitude) AS profile
  PATTERN (CRUISE DESCENT+ GROUND) WITHIN INTERVAL '15' MINUTE
  DEFINE CRUISE AS altitude > 36000,
         DESCENT AS altitude <= PREV(altitude),
         GROUND AS altitude <= PREV(altitude) AND altitude < 32000
) AS descents
ORDER BY down
"""


def load(path: str) -> pa.Table:
    """Reports with an altitude, as a table."""
    with gzip.open(path, "rt") as file:
        records = json.load(file)
    table = pa.Table.from_pylist(
        [
            {"timestamp": r["timestamp"], "icao24": r["icao24"], "altitude": r["altitude"]}
            for r in records
            if r.get("altitude") is not None
        ]
    )
    times = table.column("timestamp").cast(pa.int64()).cast(pa.timestamp("ms"))
    altitude = table.column("altitude").cast(pa.float64())
    return table.set_column(0, "timestamp", times).set_column(2, "altitude", altitude)


def confirm(events: pa.Table, match: dict[str, object]) -> None:
    """The raw events of the aircraft between top and down: they must be the match's profile."""
    mask = pc.and_(
        pc.equal(events["icao24"], match["icao24"]),
        pc.and_(
            pc.greater_equal(events["timestamp"], pa.scalar(match["top"], pa.timestamp("ms"))),
            pc.less_equal(events["timestamp"], pa.scalar(match["down"], pa.timestamp("ms"))),
        ),
    )
    raw = events.filter(mask).sort_by("timestamp")["altitude"].to_pylist()
    profile = match["profile"]
    if (
        raw != profile
        or sorted(raw, reverse=True) != raw
        or not raw[0] > 36000
        or not raw[-1] < 32000
    ):
        raise SystemExit(f"the altitudes of {match['icao24']} do not confirm the match")


def main() -> None:
    """Load, query, confirm, show."""
    events = load(sys.argv[1])
    schema = pa.schema(
        [("timestamp", pa.timestamp("ms")), ("icao24", pa.string()), ("altitude", pa.float64())]
    )
    with tempfile.TemporaryDirectory() as directory, chronicle.open(directory) as db:
        flights = db.create_stream("flights", schema, time="timestamp")
        flights.append(events.sort_by("timestamp"))
        matches = db.sql(QUERY).arrow().to_pylist()
    for match in matches:
        confirm(events, match)
        profile = match["profile"]
        steps = profile[:: max(1, len(profile) // 8)]
        shown = " ".join(f"{altitude:.0f}" for altitude in steps)
        print(f"{match['icao24']}  {match['down']:%H:%M:%S}  {match['events']:4d} events  {shown}")
    print(f"{len(matches)} descents toward landing, each confirmed by its altitudes")
    if len(sys.argv) > 2:
        import matplotlib.pyplot as plt

        for match in matches:
            plt.plot(match["profile"])
        plt.xlabel("event of the match")
        plt.ylabel("altitude")
        plt.savefig(sys.argv[2])


if __name__ == "__main__":
    main()
