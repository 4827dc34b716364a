"""The plan room: the full-size run in shapes only, and what T5X would refuse or do without a word."""
