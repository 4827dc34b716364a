"""The version of this runtime, without anything that it needs."""

__version__ = "0.1.0+embedded"
