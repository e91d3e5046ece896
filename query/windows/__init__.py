"""Windowed aggregation: TUMBLE, HOP, TUMBLE_ROWS, HOP_ROWS and SESSION (thesis sections 2.3.1 and 3.3)."""
