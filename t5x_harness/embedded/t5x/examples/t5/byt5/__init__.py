"""Gin files of ByT5."""
