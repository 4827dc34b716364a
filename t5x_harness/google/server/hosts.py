"""Which hosts are Google's: what the certificate names and what the proxy takes is the same list."""

from __future__ import annotations

import ipaddress

METADATA_HOSTS = ("metadata.google.internal", "169.254.169.254")

SERVED_NAMES = (
    "googleapis.com",
    "*.googleapis.com",
    "*.storage.googleapis.com",  # buckets as host names
    "*.mtls.googleapis.com",  # what clients with a device certificate ask
    "*.p.googleapis.com",  # Private Service Connect
    "accounts.google.com",
    "dl.google.com",  # which `gcloud init` wants to reach
    "gcr.io",  # registries of images, which gcloud asks for those that jobs name
    "*.gcr.io",
    "*.pkg.dev",
    *METADATA_HOSTS,
)
"""Names as a certificate has them: ``*`` stands for one label."""


def is_served(host: str) -> bool:
    """Returns whether a host is one of Google's API hosts.

    Args:
      host: without a port, in any case.
    """
    host = host.lower().removesuffix(".")
    first, _, rest = host.partition(".")
    return "*" not in host and (host in SERVED_NAMES or (bool(first) and f"*.{rest}" in SERVED_NAMES))


def is_loopback(host: str) -> bool:
    """Returns whether a host is this machine's by a name or an address that no other one can have.

    Args:
      host: without a port, in lower case.
    """
    if host == "localhost" or host.endswith(".localhost"):  # RFC 6761
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def would_bypass(entry: str) -> bool:
    """Returns whether an entry of ``no_proxy`` may send a client to one of Google's hosts directly.

    Clients read such entries in many ways: as a host, as a suffix with or without a dot in front, as a network. One
    counts here as whatever any of them may make of it.

    Args:
      entry: one of the list, such as ``.example.org``, ``*`` or ``10.0.0.0/8``.
    """
    entry = entry.strip().lower()
    if not entry or entry == "*":
        return bool(entry)
    name = entry.removeprefix("*").lstrip(".")
    if name.count(":") == 1:  # a port; more of them are in an IPv6 address
        name = name.partition(":")[0]
    if is_served(name):
        return True
    suffix = any(served.removeprefix("*").endswith(name) for served in SERVED_NAMES)
    below = name.endswith((".googleapis.com", ".google.internal"))
    return suffix or below or _holds_metadata_server(entry)


def _holds_metadata_server(entry: str) -> bool:
    try:
        network = ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
    return ipaddress.ip_address(METADATA_HOSTS[1]) in network
