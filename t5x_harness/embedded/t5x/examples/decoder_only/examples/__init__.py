"""Gin files of whole runs with a language model."""
