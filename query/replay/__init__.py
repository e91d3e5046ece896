"""Replay intervals: run a pattern only where history can hold a match."""
