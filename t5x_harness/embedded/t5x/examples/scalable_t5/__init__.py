"""T5 with scanned layers: one compiled layer for a whole stack. T5 1.1, mT5 and umT5."""
