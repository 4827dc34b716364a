"""T5 whose layers are scanned: one compiled layer for all of a stack. T5 1.1, mT5 and umT5."""
