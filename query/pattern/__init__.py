"""Row pattern recognition: pattern text to tree, to instruction program, to compiled machine."""
