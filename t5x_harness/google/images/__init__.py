"""Registries of container images, limited to the question which images exist: those that stand in for a command."""
