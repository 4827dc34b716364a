"""Registries of container images, as far as clients ask them which images exist: those that stand for a command."""
