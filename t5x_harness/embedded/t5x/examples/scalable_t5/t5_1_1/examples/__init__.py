"""Gin files of whole runs with T5 1.1."""
