"""TensorboardService: Tensorboards, experiments, runs, time series, and their data."""
