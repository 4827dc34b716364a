"""The process of a server, started by the module ``launch``."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence

from t5x_harness.google.product import SERVER_NAME
from t5x_harness.google.server.endpoints import Endpoints
from t5x_harness.google.server.settings import ServerError, ServerSettings
from t5x_harness.system.processes import name_process


def main(arguments: Sequence[str]) -> int:
    """Runs a server until it ends.

    Args:
      arguments: the settings as JSON, and a descriptor to which one line of JSON is written when the server is ready.
        The descriptor stays open until the server has cleaned up.
    """
    settings, descriptor = ServerSettings.from_json(arguments[0]), int(arguments[1])
    # Orphaned, so that an owner that waits for all of its children does not wait for the server.
    if os.fork():
        os._exit(0)
    name_process(SERVER_NAME)

    def ready(endpoints: Endpoints) -> None:
        os.write(descriptor, f"{endpoints.to_json()}\n".encode())

    try:
        from t5x_harness.google.server.process import serve

        asyncio.run(serve(settings, ready))
    except (ServerError, BrokenPipeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
