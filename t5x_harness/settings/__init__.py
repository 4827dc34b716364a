"""What the user has set, in pyproject.toml and in numbers with units."""
