"""Hyperparameter tuning jobs: which parameters each trial gets, its metrics, and the job around the trials."""
