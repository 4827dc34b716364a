"""Gin files that belong to no model family. A package, so that Gin's ``include`` finds them in every install."""
