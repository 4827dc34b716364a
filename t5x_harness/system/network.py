"""Keeps a run, or a piece of this process, from reaching anything beyond this machine.

Two nets: Python's sockets refuse with an error that says how to allow it, in :func:`forbidden`; and in runs, which are
processes of their own, the kernel refuses to native code and to every program they start, too: see
:mod:`t5x_harness.system.network_filter`. Both are for accidents, such as a smoke run that reads a bucket; a
program that wants to get out can.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from t5x_harness.system import network_filter
from t5x_harness.system.addresses import HOW_TO_ALLOW, is_here_name, is_here_url
from t5x_harness.variables import NETWORK_VARIABLE

# Where the proxy variables of a machine would lead.
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "grpc_proxy")
_GUARDED = ("connect", "connect_ex", "sendto", "sendmsg")
_LOOKUPS = ("getaddrinfo", "gethostbyname", "gethostbyname_ex")


class NetworkForbidden(PermissionError):
    """A connection beyond this machine was refused. As an OSError it is to libraries what being offline is."""

    def __init__(self, host: str, port: object) -> None:
        where = f"{host}, port {port}" if port else host
        super().__init__(errno.EACCES, f"smoke runs and tests reach loopback only, not {where}; {HOW_TO_ALLOW}")


def run_environment(*, allowed: bool, environment: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Variables for a run; None takes one out.

    Proxies of this machine are taken out of the environment where the network is forbidden, unless they are on this
    machine themselves: a proxy on loopback is the session's own.

    Args:
      allowed: whether it may reach beyond this machine.
      environment: what they will be put over; the process's own by default.
    """
    if allowed:
        return {NETWORK_VARIABLE: "allow"}
    base = os.environ if environment is None else environment
    named = [name for proxy in _PROXIES for name in (proxy, proxy.upper())]
    outside = [name for name in named if (value := base.get(name)) and not is_here_url(value)]
    return {NETWORK_VARIABLE: "forbid", **dict.fromkeys(outside)}


def network_is_forbidden(environment: Mapping[str, str | None]) -> bool:
    """Returns whether variables forbid the network."""
    return environment.get(NETWORK_VARIABLE) == "forbid"


def confine() -> None:
    """Refuses this process, and all that it starts, whatever is beyond this machine; for good.

    For a process just forked: the kernel's part holds for the calling thread and those that it starts.
    """
    network_filter.install()
    _guard()


@contextlib.contextmanager
def forbidden() -> Iterator[None]:
    """Makes Python's sockets in this process refuse whatever is beyond this machine.

    Inside:
      NetworkForbidden: what a connection, a datagram or the lookup of a name gets.
    """
    undo = _guard()
    try:
        yield
    finally:
        undo()


def _guard() -> Callable[[], None]:
    """Puts the guards in place, and returns what takes them away."""
    methods = {name: getattr(socket.socket, name) for name in _GUARDED}
    own = {name for name in _GUARDED if name in vars(socket.socket)}
    functions = {name: getattr(socket, name) for name in _LOOKUPS}
    for name, method in methods.items():
        setattr(socket.socket, name, _guarded_method(method, index=_ADDRESS_INDEX[name]))
    for name, function in functions.items():
        setattr(socket, name, _guarded_lookup(function))

    def undo() -> None:
        for name, method in methods.items():
            if name in own:
                setattr(socket.socket, name, method)
            else:
                delattr(socket.socket, name)
        for name, function in functions.items():
            setattr(socket, name, function)

    return undo


# Which argument is the address; the last one where there may be flags in front of it.
_ADDRESS_INDEX = {"connect": 0, "connect_ex": 0, "sendto": -1, "sendmsg": 3}


def _guarded_method(method: Callable[..., Any], *, index: int) -> Callable[..., Any]:
    def guarded(self: socket.socket, *args: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6) and len(args) > index:
            _check(args[index])
        return method(self, *args)

    return guarded


def _guarded_lookup(function: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(host: Any, *args: Any, **kwargs: Any) -> Any:
        port = kwargs.get("port", args[0] if args else None)
        _check((host, port))
        return function(host, *args, **kwargs)

    return guarded


def _check(address: Any) -> None:
    """Refuses an address beyond this machine; what is not an address at all is left to the socket to refuse."""
    if not isinstance(address, tuple) or not address:
        return
    host, port = address[0], address[1] if len(address) > 1 else None
    name = host.decode(errors="replace") if isinstance(host, bytes | bytearray) else host
    if isinstance(name, str) and name and not is_here_name(name):
        raise NetworkForbidden(name, port)
