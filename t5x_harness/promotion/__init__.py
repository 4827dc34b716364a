"""Tests that become TPU jobs: their resources, their packing, and how their outcome is fetched."""
