"""The variables that redirect unmodified clients to an emulated Google Cloud, and to nothing else."""

import os
import socket
from collections.abc import Mapping
from types import MappingProxyType

from t5x_harness.google.identity import PROJECT, TOKEN
from t5x_harness.google.server.hosts import would_bypass
from t5x_harness.google.server.settings import Endpoints, SessionFolder
from t5x_harness.variables import ROOT_VARIABLE

_LOCAL = ("localhost", "127.0.0.1", "::1")


def google_environment(endpoints: Endpoints, base: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Returns the variables to set for a process before it imports any of Google's libraries.

    Args:
      base: the environment to which they are added, whose proxy exceptions are kept; by default, the
        environment of this process.
    """
    base = os.environ if base is None else base
    folder = SessionFolder(endpoints.folder)
    bundles = "CURL_CA_BUNDLE TENSORSTORE_CA_BUNDLE REQUESTS_CA_BUNDLE SSL_CERT_FILE GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
    metadata = f"127.0.0.1:{endpoints.http}"
    return MappingProxyType(
        {
            **_proxies(endpoints, base),
            # Clients trust only the session's CA, so a client that bypasses the proxy refuses the certificate.
            **dict.fromkeys(bundles.split(), str(folder.authority)),
            "SSL_CERT_DIR": str(folder.no_certificates),
            # Storage, for clients whose URL can be set. TensorFlow has its URL compiled in, and goes through the proxy.
            "STORAGE_EMULATOR_HOST": endpoints.url,
            "TENSORSTORE_GCS_HTTP_URL": endpoints.url,
            # Otherwise gcsfs asks about each bucket over gRPC, and retries for 40 to 60 s.
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
            # Otherwise TensorFlow does not see that another process has replaced an object.
            "GCS_STAT_CACHE_MAX_AGE": "0",
            # By default it reads 64 MB at a time for its cache, which makes small reads ten times slower.
            "GCS_READ_CACHE_BLOCK_SIZE_MB": "1",
            "GCS_READ_CACHE_MAX_SIZE_MB": "16",
            # The folder that runs, and programs under exec, see at /gcs.
            ROOT_VARIABLE: str(endpoints.root),
            # Accounts.
            "GOOGLE_APPLICATION_CREDENTIALS": str(folder.credentials),
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": TOKEN,
            "GOOGLE_API_USE_CLIENT_CERTIFICATE": "false",
            "GOOGLE_CLOUD_PROJECT": PROJECT,
            "NO_GCE_CHECK": "true",
            # A machine in Google's cloud has a real metadata server, to which clients would connect without a proxy.
            "GCE_METADATA_HOST": metadata,
            "GCE_METADATA_IP": metadata,
            "GCE_METADATA_ROOT": metadata,
            # gcloud and gsutil.
            "CLOUDSDK_CONFIG": str(folder.gcloud),
            "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(folder.token),
            "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE": str(folder.authority),
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_CORE_PASS_CREDENTIALS_TO_GSUTIL": "0",  # gsutil has its own, in BOTO_CONFIG
            # The project is in gcloud's configuration: a variable would override `gcloud config set project`.
            **({"CLOUDSDK_CORE_PROJECT": PROJECT} if "CLOUDSDK_CORE_PROJECT" in base else {}),
            "BOTO_CONFIG": str(folder.boto),
        }
    )


def with_programs(endpoints: Endpoints, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment with the session's own programs first on PATH: those that gcloud calls, and ``gcloud``."""
    programs = str(SessionFolder(endpoints.folder).programs)
    path = environment.get("PATH", os.defpath)
    return {**environment, "PATH": os.pathsep.join([programs, path])}


def _proxies(endpoints: Endpoints, base: Mapping[str, str]) -> dict[str, str]:
    """Returns the proxy under every name that clients look for.

    The more specific names (``grpc_proxy``, ``all_proxy``) are set only to override the user's own.
    """
    set_here = {"https_proxy", "http_proxy"}
    set_here |= {name for name in ("all_proxy", "grpc_proxy") if name in base or name.upper() in base}
    exceptions = {"no_proxy": _exceptions(base, "no_proxy")}
    if "no_grpc_proxy" in base or "NO_GRPC_PROXY" in base:
        exceptions["no_grpc_proxy"] = _exceptions(base, "no_grpc_proxy")
    lower = {**dict.fromkeys(sorted(set_here), f"http://127.0.0.1:{endpoints.proxy}"), **exceptions}
    return {**lower, **{name.upper(): value for name, value in lower.items()}}


def _exceptions(base: Mapping[str, str], name: str) -> str:
    """Returns this machine's names and the user's list, without entries that would exempt Google's hosts."""
    theirs = [entry.strip() for key in (name, name.upper()) for entry in base.get(key, "").split(",")]
    kept = [entry for entry in theirs if entry and not would_bypass(entry)]
    return ",".join(dict.fromkeys([*_LOCAL, socket.gethostname(), *kept]))
