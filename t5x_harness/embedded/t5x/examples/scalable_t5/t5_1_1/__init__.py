"""Gin files of T5 1.1."""
