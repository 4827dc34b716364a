"""Gin files of runs: training, evaluation, inference."""
