"""Benchmarks: ratios against a peer measured in the same run, written to docs/benchmarks.md."""
