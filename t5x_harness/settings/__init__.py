"""The user's settings: on command lines, in variables, ini values and pyproject.toml."""
