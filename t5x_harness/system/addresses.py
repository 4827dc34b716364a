"""Tells which addresses, names and URLs belong to this machine, and which of its ports are free."""

from __future__ import annotations

import contextlib
import ipaddress
import socket

HOW_TO_ALLOW = "allow it with @pytest.mark.network, pytest's --t5x-network=allow, or --network=allow of t5x-harness"
"""The end of every refusal of an address beyond this machine."""

_DISCARD = 9  # a port


def is_here(address: str) -> bool:
    """Tells whether an IP address belongs to this machine: loopback, unspecified, or of one of its interfaces."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None)
    ip = mapped or ip
    if ip.is_loopback or ip.is_unspecified:
        return True
    if ip.is_multicast:
        return False
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(ip), 0))  # the kernel binds no address of another machine
            # It does bind broadcast addresses, but connects to them only if a socket asks for broadcasts. Nothing is
            # sent. The method is that of the interpreter's own class, which no guard has replaced.
            super(socket.socket, probe).connect((str(ip), _DISCARD))
        except OSError:
            return False
    return True


def is_here_name(name: str) -> bool:
    """Tells whether a host name or an IP address belongs to this machine."""
    plain = name.lower().rstrip(".")
    own = {"localhost", socket.gethostname().lower(), "ip6-localhost", "ip6-loopback"}
    return plain in own or plain.endswith(".localhost") or is_here(plain)


def is_here_url(url: str) -> bool:
    """Tells whether a URL, or a host with a port, leads to this machine."""
    from urllib.parse import urlsplit

    host = urlsplit(url if "//" in url else f"//{url}").hostname
    return bool(host) and is_here_name(str(host))


def free_ports(count: int) -> list[int]:
    """Returns so many different ports of this machine on which no program listens.

    They are not reserved: the program that they are for binds them a moment later.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
