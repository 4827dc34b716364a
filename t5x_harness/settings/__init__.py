"""The settings of the user: on command lines, in variables, ini values and pyproject.toml."""
