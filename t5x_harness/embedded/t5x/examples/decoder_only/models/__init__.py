"""Gin files of language models."""
