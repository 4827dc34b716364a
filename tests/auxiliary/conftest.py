"""Fixtures for the tests of auxiliary jobs."""

from train_desk import desk as desk
