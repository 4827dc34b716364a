"""Gin files that belong to no model family. A package, so that Gin's ``include`` finds them wherever T5X is installed."""
