"""Lets Spark find ``format("chronicle")`` without registration.

Spark imports every top-level module ``pyspark_*`` and takes its ``DefaultSource``.  One that raises
disables the search for all, so errors are suppressed here; ``register`` then shows the reason.
"""

from contextlib import suppress
from importlib import import_module

with suppress(Exception):
    DefaultSource = import_module("chronicle.spark_connector.source").DefaultSource
