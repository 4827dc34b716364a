"""Has a server import of Google's library what it reads, which is half: its messages and transports, and no client.

The packages of the library import each service's clients, synchronous and not, over gRPC and over REST.
"""

from __future__ import annotations

import importlib.util
import pkgutil
import sys
from types import ModuleType

_LIBRARIES = ("google.cloud.aiplatform_v1", "google.cloud.resourcemanager_v3")


def import_messages_only() -> None:
    """Puts packages in place whose own code has not run; the modules in them can be imported.

    For a process that is ours alone: whoever wants of these packages what their own code imports does not find it.

    Raises:
      ModuleNotFoundError: ``google-cloud-aiplatform`` is not installed.
    """
    for library in _LIBRARIES:
        _put_in_place(library)
        services = _put_in_place(f"{library}.services")
        for service in pkgutil.iter_modules(services.__path__):
            _put_in_place(f"{services.__name__}.{service.name}")
            _put_in_place(f"{services.__name__}.{service.name}.transports")


def _put_in_place(package: str) -> ModuleType:
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    return sys.modules.setdefault(package, importlib.util.module_from_spec(spec))
