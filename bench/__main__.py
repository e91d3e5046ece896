"""Runs the benchmarks: ``python -m chronicle.bench [NAME ...] [--short]``.

Each benchmark module has ``run(short: bool) -> Section``.  ``--short`` uses
small data: it shows that a benchmark works, and is printed, not written to ``bench/results``.
"""

from __future__ import annotations

import argparse
import importlib
import sys

from .harness import write_section

BENCHMARKS = [
    "store",
    "bytes",
    "startup",
    "first_calls",
    "durability",
    "changing",
    "isolation",
    "small_requests",
    "two_clients",
    "windows",
    "rollups",
    "patterns",
    "keyed",
    "skip_till_any",
    "situations",
    "recency",
    "pattern_indexes",
    "cold",
    "moving",
    "segments",
    "selective",
    "index_ingest",
    "crimes",
    "live",
    "live_latency",
    "live_load",
    "live_soak",
    "live_bank",
    "spark_connector",
]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m chronicle.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--short", action="store_true", help="small data; print, do not write")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    for name in options.names or BENCHMARKS:
        section = importlib.import_module(f".{name}", __package__).run(short=options.short)
        if options.short:
            print(f"## {section.title}\n\n{section.markdown()}\n", flush=True)
        else:
            write_section(name, section)
    return 0


if __name__ == "__main__":
    sys.exit(main())
