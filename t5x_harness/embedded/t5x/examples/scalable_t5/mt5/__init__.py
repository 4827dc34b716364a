"""Gin files of mT5."""
