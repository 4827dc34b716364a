"""Keeps a run, or a block in this process, from reaching anything beyond this machine.

There are two guards. With :func:`forbidden`, Python's sockets raise an error that explains how to allow the connection.
In runs, which are separate processes, the kernel also refuses connections of native code and of the programs that they
start; see :mod:`t5x_harness.system.network_filter`. Both prevent accidents, such as a smoke run that reads a bucket; a
program that wants to get out can.
"""

import contextlib
import errno
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from t5x_harness.system import network_filter
from t5x_harness.system.network_filter import HOW_TO_ALLOW, is_here_name, is_here_url
from t5x_harness.variables import NETWORK_VARIABLE

# A machine's proxy variables.
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "grpc_proxy")
_LOOKUPS = ("getaddrinfo", "gethostbyname", "gethostbyname_ex")


class NetworkForbidden(PermissionError):
    """A connection beyond this machine was refused; libraries treat this OSError as being offline."""

    def __init__(self, host: str, port: object) -> None:
        where = f"{host}, port {port}" if port else host
        super().__init__(errno.EACCES, f"smoke runs and tests reach loopback only, not {where}; {HOW_TO_ALLOW}")


def run_environment(*, allowed: bool, environment: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Returns variables for a run; None removes one.

    If the network is forbidden, proxies are removed unless they run on this machine, because a proxy on loopback is the
    session's own.

    Args:
      allowed: whether the run may reach beyond this machine.
      environment: the environment that the variables change; the process's own by default.
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
    """Permanently keeps this process, and every process that it starts, from connecting beyond this machine.

    The process must have just been forked, because the kernel's part covers only the calling thread and its children.
    """
    network_filter.install()
    _guard()


@contextlib.contextmanager
def forbidden() -> Iterator[None]:
    """Makes Python's sockets in this process refuse everything beyond this machine.

    Inside:
      NetworkForbidden: a connection, a datagram or the lookup of a name would leave this machine.
    """
    undo = _guard()
    try:
        yield
    finally:
        undo()


def _guard() -> Callable[[], None]:
    """Installs the guards, and returns a function that removes them."""
    methods = {name: getattr(socket.socket, name) for name in _ADDRESS_INDEX}
    own = {name for name in _ADDRESS_INDEX if name in vars(socket.socket)}
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


# The index of the address among the arguments; the last one if flags may precede it.
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
    """Raises for an address beyond this machine; the socket itself rejects anything that is not an address."""
    if not isinstance(address, tuple) or not address:
        return
    host, port = address[0], address[1] if len(address) > 1 else None
    name = host.decode(errors="replace") if isinstance(host, bytes | bytearray) else host
    if isinstance(name, str) and name and not is_here_name(name):
        raise NetworkForbidden(name, port)
