"""The hosts that are Google's: one list, for the certificate and for the proxy."""

import ipaddress

METADATA_HOSTS = ("metadata.google.internal", "169.254.169.254")

SERVED_NAMES = (
    "googleapis.com",
    "*.googleapis.com",
    "*.storage.googleapis.com",  # buckets as host names
    "*.mtls.googleapis.com",  # for clients with a device certificate
    "*.p.googleapis.com",  # Private Service Connect
    "accounts.google.com",
    "dl.google.com",  # which `gcloud init` checks
    "gcr.io",  # registries, which gcloud asks for the images of jobs
    "*.gcr.io",
    "*.pkg.dev",
    *METADATA_HOSTS,
)
"""Names in the form of a certificate, in which ``*`` stands for one label."""


def is_served(host: str) -> bool:
    """Returns whether a host, without its port and in upper or lower case, is one of Google's API hosts."""
    host = host.lower().removesuffix(".")
    first, _, rest = host.partition(".")
    return "*" not in host and (host in SERVED_NAMES or (bool(first) and f"*.{rest}" in SERVED_NAMES))


def is_loopback(host: str) -> bool:
    """Returns whether a name or address, without a port and in lower case, can only be this machine."""
    if host == "localhost" or host.endswith(".localhost"):  # RFC 6761
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def would_bypass(entry: str) -> bool:
    """Returns whether an entry of ``no_proxy`` may send a client directly to one of Google's hosts.

    Clients read entries like ``.example.org``, ``*`` or ``10.0.0.0/8`` in different ways: as a host, as a suffix with
    or without a leading dot, or as a network. All of these ways count here.
    """
    entry = entry.strip().lower()
    if not entry or entry == "*":
        return bool(entry)
    name = entry.removeprefix("*").lstrip(".")
    if name.count(":") == 1:  # a port; an IPv6 address has more colons
        name = name.partition(":")[0]
    if is_served(name):
        return True
    suffix = any(served.removeprefix("*").endswith(name) for served in SERVED_NAMES)
    below = name.endswith((".googleapis.com", ".google.internal"))
    try:
        return suffix or below or ipaddress.ip_address(METADATA_HOSTS[1]) in ipaddress.ip_network(entry, strict=False)
    except ValueError:  # not a network
        return False
