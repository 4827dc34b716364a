"""A pytest plugin and local emulation harness for people who train with T5X."""

__version__ = "0.1.0"
