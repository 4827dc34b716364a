"""Gin files of umT5."""
