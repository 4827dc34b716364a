"""Registries of container images, limited to the question of which images exist: those that stand in for a command."""
