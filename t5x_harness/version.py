"""The harness's version, and where it is installed; the versions of other packages."""

__version__ = "0.1.0"


ORIGIN = __file__.removesuffix("version.py") + "__init__.py"
"""The file of the package itself; a string, so that importing the package imports nothing else."""


def version_of(package: str) -> str | None:
    """Returns the version of an installed package; None if it is not installed."""
    import importlib.metadata  # its import costs as much as the rest of what starting a process imports

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
