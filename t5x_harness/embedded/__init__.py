"""The embedded T5X runtime: a folder for the import path, holding the package ``t5x``."""
