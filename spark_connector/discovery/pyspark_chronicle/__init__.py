"""Lets ``spark.read.format("chronicle")`` find Chronicle without registration.

On the first unknown format Spark imports every top-level module named ``pyspark_*`` and takes its
``DefaultSource``.  One module that raises there disables the search for all of them, so this one
swallows whatever goes wrong: without a ``DefaultSource`` Spark passes over it, and
``chronicle.spark_connector.register(spark)`` then shows the reason.
"""

from contextlib import suppress
from importlib import import_module

with suppress(Exception):
    DefaultSource = import_module("chronicle.spark_connector.source").DefaultSource
