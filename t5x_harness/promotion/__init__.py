"""Tests that become TPU jobs: their resources, their packing, and the fetching of their outcomes."""
