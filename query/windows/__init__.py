"""Windowed aggregation: TUMBLE, HOP, TUMBLE_ROWS, HOP_ROWS and SESSION (thesis 2.3.1, 3.3)."""
