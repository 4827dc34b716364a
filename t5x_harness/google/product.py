"""The name under which the emulated Google Cloud speaks: that of the package that it is a part of."""

from __future__ import annotations

PACKAGE = __name__.partition(".")[0]
PRODUCT = PACKAGE.replace("_", "-")
