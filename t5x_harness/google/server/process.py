"""The server: the files of its session, its ports, the services on them, and its life cycle.

All certificates and credentials are new for each session and are only in the session's folder, so that none of them is
trusted anywhere else or later.
"""

import asyncio
import contextlib
import datetime
import functools
import importlib
import json
import os
import resource
import shlex
import shutil
import signal
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from t5x_harness.google.asgi import StorageApp
from t5x_harness.google.environment import google_environment
from t5x_harness.google.identity import ACCOUNT, PRIVATE, PROJECT, Authority
from t5x_harness.google.images.service import ImageService
from t5x_harness.google.product import PRODUCT
from t5x_harness.google.server.hosts import SERVED_NAMES
from t5x_harness.google.server.http1 import HttpServer
from t5x_harness.google.server.listener import Connections, Peers, PortListener, ThrottledLog
from t5x_harness.google.server.router import front
from t5x_harness.google.server.settings import Endpoints, ServerError, ServerSettings, SessionFolder
from t5x_harness.google.server.tunnel import ByProtocol, Proxy, Refusals, relay, with_whole_urls
from t5x_harness.google.server.vertex_endpoint import GrpcService, VertexService
from t5x_harness.google.storage.errors import CannotOpen, StoreError
from t5x_harness.google.storage_http.signed_urls import checked
from t5x_harness.google.tpu import remote_shell
from t5x_harness.google.tpu.service import TpuService
from t5x_harness.google.vertex.settings import VertexSettings
from t5x_harness.system.own_folders import own_folder

_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
# Some clients refuse certificates that are valid for longer than 825 days. A clock may be wrong by hours.
_BEFORE, _AFTER = datetime.timedelta(days=1), datetime.timedelta(days=365)


def make_certificates() -> tuple[bytes, bytes]:
    """Makes a CA, and one certificate for all served names and for this machine.

    Returns the CA's certificate, whose key is not kept, and the server's key and certificate, as PEM.
    """
    now = datetime.datetime.now(datetime.UTC)
    authority = trustme.CA(
        path_length=0, organization_name=f"{PRODUCT} session CA", organization_unit_name="for one session"
    )
    server = authority.issue_cert(
        *SERVED_NAMES,
        *_LOCAL_NAMES,
        common_name=PRODUCT,
        organization_name=PRODUCT,
        organization_unit_name="session",
        not_before=now - _BEFORE,
        not_after=now + _AFTER,
    )
    return authority.cert_pem.bytes(), server.private_key_and_cert_chain_pem.bytes()


def make_service_key() -> bytes:
    """Makes the key of a service account, as PEM. This takes as long as the rest of the start."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)  # google-auth accepts no other kind
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def service_account(key: bytes, token_uri: str) -> str:
    """Returns the account's JSON file; at ``token_uri`` clients exchange a signed claim for a token."""
    return json.dumps(
        {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": "0" * 40,
            "private_key": key.decode(),
            "client_email": ACCOUNT,
            "client_id": "100000000000000000000",
            "auth_uri": "https://accounts.google.com/o/oauth2/auth",
            "token_uri": token_uri,
            "universe_domain": "googleapis.com",
        },
        indent=2,
    )


def fill_folder(folder: SessionFolder) -> ssl.SSLContext:
    """Writes the certificates and creates the empty folders; returns a context for clients' connections.

    It prefers HTTP/1.1, and accepts ``h2`` from clients that offer nothing else, which only gRPC clients do.
    """
    for empty in (folder.gcloud, folder.gsutil, folder.no_certificates, folder.programs):
        empty.mkdir()
    authority, server = make_certificates()
    folder.authority.write_bytes(authority)
    _write_secret(folder.server, server)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder.server)
    context.set_alpn_protocols(["http/1.1", "h2"])
    # Tickets for resuming sessions cost a fifth of a handshake, and none of the clients uses them.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    return context


def write_clients_files(folder: SessionFolder, key: bytes, token: str, *, url: str, proxy: int) -> None:
    """Writes clients' files: credentials, a token, configurations of ``gcloud`` and ``gsutil``, and programs."""
    remote_shell.write_gcloud_configuration(folder.gcloud, PROJECT)
    _write_secret(folder.credentials, service_account(key, f"{url}{PRIVATE}/token").encode())
    _write_secret(folder.token, token.encode())
    # ssh and scp are called by gcloud for workers of TPU VMs.
    for name in ("ssh", "scp", *(["gcloud"] if shutil.which("gcloud") else [])):
        words = [sys.executable, "-I", remote_shell.__file__, name, str(folder.programs), url, str(folder.token)]
        path = folder.programs / name
        path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        path.chmod(0o755)
    boto: dict[str, dict[str, object]] = {
        "Boto": {
            "ca_certificates_file": folder.authority,
            "proxy": "127.0.0.1",
            "proxy_port": proxy,
            "proxy_rdns": True,
        },
        "Credentials": {"gs_service_key_file": folder.credentials},
        "GSUtil": {
            "state_dir": folder.gsutil,
            "default_project_id": PROJECT,
            "software_update_check_period": 0,
            "check_hashes": "if_fast_else_skip",  # needs a compiled crcmod, which few machines have
        },
    }
    with folder.boto.open("w", encoding="utf-8") as file:
        for section, values in boto.items():
            print(f"[{section}]", *(f"{name} = {value}" for name, value in values.items()), sep="\n", file=file)


def _write_secret(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)


_DESCRIPTORS = 1 << 16  # no client needs more, and some programs in jobs close all possible descriptors
_POLL_SECONDS = 0.5


async def serve(settings: ServerSettings, ready: Callable[[Endpoints], None]) -> None:
    """Serves until SIGTERM, SIGINT or SIGHUP, or until the owner has ended; calls ``ready`` once every port is open.

    Raises ServerError if the server cannot start; the message says why.
    """
    folder = tempfile.gettempdir()
    # A value in clients' configurations is one line, and gsutil reads a percent sign as the beginning of another name.
    if not folder.isprintable() or "%" in folder:
        raise ServerError(
            f"the temporary folder {folder!r} has a character in its name that configuration files of gsutil and "
            "gcloud cannot have: set TMPDIR to another one"
        )
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            loop.add_signal_handler(number, stopped.set)
    with own_folder(f"{PRODUCT}-google-") as own:
        async with _running(settings, SessionFolder(own.path)) as endpoints:
            ready(endpoints)
            ends: list[asyncio.Task[object]] = [asyncio.create_task(stopped.wait())]
            if settings.owner is not None:
                ends.append(asyncio.create_task(_ended(settings.owner)))
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)


@contextlib.asynccontextmanager
async def _running(settings: ServerSettings, folder: SessionFolder) -> AsyncIterator[Endpoints]:
    root = settings.root or folder.buckets
    service_key = asyncio.create_task(asyncio.to_thread(make_service_key))  # in parallel, because it releases the GIL
    refusals, authority = Refusals(), Authority()
    vertex = VertexService(settings.vertex, authority)
    grpc = GrpcService(vertex)
    context = fill_folder(folder)
    storage = _storage(settings, root)
    tpu = TpuService(authority)
    vertex.resets.append(tpu.reset)
    images = ImageService(settings.vertex.images, refusals.refuse)
    app = front(checked(storage, authority), vertex, tpu, images, authority, refusals)
    http = HttpServer(with_whole_urls(app, refusals), Connections(_raise_limit() * 3 // 4))  # the rest is for files

    def through_grpc(host: str = "") -> asyncio.Protocol:
        return relay(grpc.port, host, grpc.hosts)

    by_protocol = functools.partial(ByProtocol, http.protocol, through_grpc)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(grpc.stop)
        stack.push_async_callback(asyncio.to_thread, storage.close)
        peers, log = Peers(), ThrottledLog()
        stack.callback(peers.close)
        if not peers.known:
            log.write(
                "this system does not report the owners of connections (no sock_diag, no /proc/net/tcp): every user of "
                "this machine can use this emulated Google Cloud"
            )
        await stack.enter_async_context(http.connections.watched())
        stack.push_async_callback(http.stop)
        stack.push_async_callback(asyncio.to_thread, tpu.close)
        stack.push_async_callback(vertex.stop)  # first: jobs may still use storage while they end

        def listen(protocol: Callable[[], asyncio.Protocol], port: int = 0, tls: ssl.SSLContext | None = None) -> int:
            listener = PortListener(protocol, port, tls, peers=peers, connections=http.connections, log=log)
            stack.callback(listener.close)
            return listener.port

        endpoints = Endpoints(
            http=listen(http.protocol, settings.port),
            tls=listen(by_protocol, tls=context),
            proxy=listen(
                lambda: Proxy(context, by_protocol, http.protocol, refusals, http.connections), settings.proxy_port
            ),
            grpc=listen(through_grpc),
            folder=folder.path,
            root=root.absolute(),
            pid=os.getpid(),
            state=await vertex.open_state(),
        )
        authority.key = await service_key
        write_clients_files(folder, authority.key, authority.token, url=endpoints.url, proxy=endpoints.proxy)
        vertex_settings = VertexSettings(endpoints.root, folder.jobs, google_environment(endpoints), settings.vertex)
        vertex.begin(vertex_settings)
        is_kept = settings.root is not None and settings.vertex.has_lasting_state
        tpu_vms = endpoints.root / "tpu" if is_kept else folder.tpu_vms
        tpu.begin(tpu_vms, folder.programs, vertex_settings, vertex.state)
        yield endpoints


def _storage(settings: ServerSettings, root: Path) -> StorageApp:
    module, _, attribute = settings.app.partition(":")
    factory: Callable[..., StorageApp] = getattr(importlib.import_module(module), attribute)
    try:
        root.mkdir(parents=True, exist_ok=True)
        return factory(root, create_buckets=True) if settings.create_buckets else factory(root)
    except OSError as error:
        raise ServerError(f"{root} cannot keep buckets: {error.strerror or error}") from error
    except (CannotOpen, StoreError) as error:
        raise ServerError(str(error)) from error


def _raise_limit() -> int:
    """Raises the limit of this process's descriptors as far as is allowed and useful; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


async def _ended(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:  # a kernel, or a sandbox, without pidfds
        while os.path.exists(f"/proc/{pid}"):
            await asyncio.sleep(_POLL_SECONDS)
        return
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(descriptor, gone.set)
        await gone.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
