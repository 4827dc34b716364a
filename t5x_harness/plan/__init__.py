"""The plan package: traces the full-size run in shapes only, and finds what T5X would refuse or silently do wrong."""
