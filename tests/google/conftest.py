"""Makes the modules of this folder importable for the tests in the folders below it."""
