"""Tests that become TPU jobs: what they ask for, how they are packed, and how their outcome comes back."""
