"""What a person types: each command of the shell, its arguments and its output."""
