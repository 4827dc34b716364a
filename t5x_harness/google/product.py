"""The name of the product in messages of the emulated Google Cloud: the name of the package that contains it."""

PACKAGE = __name__.partition(".")[0]
PRODUCT = PACKAGE.replace("_", "-")

SERVER_NAME = "google-emulator"
"""The name of a server's process in ``ps``."""
