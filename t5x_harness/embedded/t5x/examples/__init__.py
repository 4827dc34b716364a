"""Example models for the embedded T5X runtime."""
