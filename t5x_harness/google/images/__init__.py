"""Registries of container images, as far as they are asked which images there are: those that stand for a command."""
