"""The commands of the shell, each with its arguments and its output."""
