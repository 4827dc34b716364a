"""Smoke tests and runs reach only loopback, are told so, and can be allowed more; nothing else is affected."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from network_objects import Client

from t5x_harness.system import processes
from t5x_harness.system.network import NetworkForbidden, forbidden, run_environment
from t5x_harness.system.network_filter import is_here
from t5x_harness.variables import NETWORK_VARIABLE
from t5x_harness.workers.errors import RunRaised
from t5x_harness.workers.in_process import InProcess
from t5x_harness.workers.run import RunProcess
from t5x_harness.workers.zygote import Zygote

# TEST-NET-1 and the documentation's prefix: addresses that no machine has.
OUTSIDE = "192.0.2.1"
OUTSIDE_6 = "2001:db8::1"
ADVICE = "allow it with @pytest.mark.network, pytest's --t5x-network=allow, or --network=allow of t5x-harness"


@pytest.fixture
def loopback() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()


# In this process, with Python's sockets.


@pytest.mark.parametrize(
    ("attempt", "where"),
    [
        (lambda: socket.create_connection((OUTSIDE, 443)), f"{OUTSIDE}, port 443"),
        (lambda: socket.create_connection(("storage.googleapis.com", 443)), "storage.googleapis.com, port 443"),
        (lambda: socket.socket().connect((OUTSIDE, 80)), f"{OUTSIDE}, port 80"),
        (lambda: socket.socket().connect_ex((OUTSIDE, 80)), f"{OUTSIDE}, port 80"),
        (lambda: socket.socket(socket.AF_INET6).connect((OUTSIDE_6, 80, 0, 0)), f"{OUTSIDE_6}, port 80"),
        (lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", (OUTSIDE, 53)), f"{OUTSIDE}, port 53"),
        (lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", 0, (OUTSIDE, 53)), f"{OUTSIDE}, port 53"),
        (lambda: socket.socket(type=socket.SOCK_DGRAM).sendmsg([b"x"], [], 0, (OUTSIDE, 53)), f"{OUTSIDE}, port 53"),
        (lambda: socket.getaddrinfo("example.com", 80), "example.com, port 80"),
        (lambda: socket.getaddrinfo("example.com", port="https"), "example.com, port https"),
        (lambda: socket.gethostbyname("example.com"), "example.com"),
    ],
)
def test_what_is_beyond_this_machine_is_refused_by_name(attempt: Callable[[], Any], where: str) -> None:
    with forbidden(), pytest.raises(NetworkForbidden) as refused:
        attempt()
    assert refused.value.strerror == f"smoke runs and tests reach loopback only, not {where}; {ADVICE}"


def test_loopback_and_unix_sockets_are_reached(loopback: tuple[str, int], tmp_path: Path) -> None:
    with forbidden():
        for host in ("127.0.0.1", "localhost", "::ffff:127.0.0.1"):
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with socket.socket(family) as client:
                client.connect((host, loopback[1]))
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind(str(tmp_path / "s"))
            server.listen()
            client.connect(str(tmp_path / "s"))
        assert socket.getaddrinfo("127.0.0.1", loopback[1])
        assert socket.getaddrinfo(None, 0)


def test_sockets_are_afterwards_as_they_were() -> None:
    before = {name: value for name, value in vars(socket.socket).items() if callable(value)}, socket.getaddrinfo
    with forbidden(), forbidden():
        assert socket.getaddrinfo is not before[1]
    assert ({name: value for name, value in vars(socket.socket).items() if callable(value)}, socket.getaddrinfo) == (
        before
    )


@pytest.mark.parametrize(
    ("address", "here"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("0.0.0.0", True), ("::ffff:127.0.0.1", True),
        (OUTSIDE, False), (OUTSIDE_6, False), ("::ffff:192.0.2.1", False), ("224.0.0.1", False), ("fe80::1%x", False),
        ("example.com", False), ("", False), ("255.255.255.255", False),
    ],
)  # fmt: skip
def test_which_addresses_are_here(address: str, here: bool) -> None:
    assert is_here(address) is here


def test_proxies_elsewhere_are_taken_from_runs_and_those_here_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:3128")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example.com:3128")
    monkeypatch.setenv("grpc_proxy", "192.0.2.7:3128")
    assert run_environment(allowed=False) == {NETWORK_VARIABLE: "forbid", "HTTP_PROXY": None, "grpc_proxy": None}
    assert run_environment(allowed=True) == {NETWORK_VARIABLE: "allow"}


# In runs.


@pytest.fixture(scope="module")
def runs() -> Iterator[Zygote]:
    with Zygote() as shared:
        yield shared


def start(runs: Zygote | InProcess, folder: Path, policy: str) -> RunProcess:
    here = str(Path(__file__).parent)
    env = {NETWORK_VARIABLE: policy}
    return runs.start("network_objects:Client", {}, log=folder / "run.log", env=env, python_path=[here])


def test_a_run_is_refused_by_python_with_the_advice(runs: Zygote, tmp_path: Path) -> None:
    with start(runs, tmp_path, "forbid") as run, pytest.raises(RunRaised) as refused:
        run.call("connect", host="storage.googleapis.com", port=443)
    assert refused.value.type_name == "t5x_harness.system.network.NetworkForbidden"
    assert f"loopback only, not storage.googleapis.com, port 443; {ADVICE}" in str(refused.value)


@pytest.fixture
def needs_filter() -> None:
    """Skips a test if the kernel does not ask before it connects."""
    code = f"""
import ctypes, socket, sys
from t5x_harness.system.network_filter import install
if not install():
    sys.exit("the kernel takes no filter")
try:
    socket.socket().connect(({OUTSIDE!r}, 80))
except PermissionError:
    sys.exit(0)
except OSError as error:
    sys.exit(f"the memory of a process cannot be read: {{error}}")
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], check=False, capture_output=True, text=True, timeout=60)
    if done.returncode:
        pytest.skip(f"connections of native code are not refused here: {done.stderr.strip()}")


@pytest.mark.parametrize("method", ["connect_natively", "connect_in_child", "send_natively", "open_fast_natively"])
@pytest.mark.usefixtures("needs_filter")
def test_native_code_and_programs_are_refused_by_the_kernel(runs: Zygote, tmp_path: Path, method: str) -> None:
    with start(runs, tmp_path, "forbid") as run:
        assert run.call(method, host=OUTSIDE, port=4711) == "Permission denied"
    program = "python" if method == "connect_in_child" else "t5x-run"  # the child may also be called python3
    refused = [line for line in (tmp_path / "run.log").read_text().splitlines() if line.startswith("t5x-harness: ")]
    assert len(refused) == 1
    assert refused[0].startswith(f"t5x-harness: refused {program}"), refused
    assert refused[0].endswith(f" {OUTSIDE}, port 4711: runs reach loopback only; {ADVICE}")


@pytest.mark.usefixtures("needs_filter")
def test_broadcasts_unusual_families_and_io_uring_are_refused_by_the_kernel(runs: Zygote, tmp_path: Path) -> None:
    with start(runs, tmp_path, "forbid") as run:
        assert run.call("broadcast_natively", host="255.255.255.255", port=9) == "Permission denied"
        assert run.call("make_socket", family=socket.AF_VSOCK) == "Permission denied"
        assert run.call("make_socket", family=socket.AF_PACKET) == "Permission denied"
        assert run.call("make_socket", family=socket.AF_NETLINK) == "done"
        assert run.call("set_up_io_uring") == "Function not implemented"
    log = (tmp_path / "run.log").read_text()
    assert "refused t5x-run 255.255.255.255, port 9: runs reach loopback only; " in log
    assert "refused t5x-run a socket of the family AF_VSOCK: runs reach loopback only; " in log


@pytest.mark.usefixtures("needs_filter")
def test_the_end_of_who_answers_the_kernel_is_told(runs: Zygote, tmp_path: Path) -> None:
    with start(runs, tmp_path, "forbid") as run:
        run.call("talk")
        answering: list[int] = []
        while not answering:  # it starts next to the run
            below = [Path(f"/proc/{pid}/comm") for pid in processes.descendants(runs.pid or 0)]
            answering = [int(comm.parent.name) for comm in below if comm.read_text() == "t5x-network\n"]
        os.kill(answering[0], signal.SIGKILL)
        log = tmp_path / "run.log"
        while "every connection fails now" not in log.read_text():
            time.sleep(0.02)
        assert run.call("connect_natively", host="127.0.0.1", port=9) == "Function not implemented"
    assert "t5x-harness: the process t5x-network was killed by SIGKILL" in log.read_text()


@pytest.mark.parametrize("method", ["connect", "connect_natively", "connect_in_child", "send_natively"])
def test_loopback_is_reached_from_runs(runs: Zygote, tmp_path: Path, method: str, loopback: tuple[str, int]) -> None:
    with start(runs, tmp_path, "forbid") as run:
        assert run.call(method, host=loopback[0], port=loopback[1]) == "done"
        assert run.call("talk") == "through a pair of sockets"
    assert "refused" not in (tmp_path / "run.log").read_text()


def test_a_run_that_is_allowed_has_neither(runs: Zygote, tmp_path: Path) -> None:
    with start(runs, tmp_path, "allow") as run:
        assert run.call("guards") == {"python": False, "kernel": Client.guards(Client({}, None))["kernel"]}
    with start(runs, tmp_path, "forbid") as run:
        assert run.call("guards")["python"] is True


def test_who_answers_the_kernel_ends_with_the_run(runs: Zygote, tmp_path: Path) -> None:
    with start(runs, tmp_path, "forbid") as run:
        run.call("talk")
    assert runs.pid
    deadline = time.monotonic() + 20
    while left := processes.descendants(runs.pid):
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


def test_a_run_in_this_process_is_guarded_by_python_while_it_works(tmp_path: Path) -> None:
    with InProcess() as workers:
        with start(workers, tmp_path, "forbid") as run, pytest.raises(NetworkForbidden, match="reach loopback only"):
            run.call("connect", host=OUTSIDE, port=443)
        assert socket.getaddrinfo.__name__ == "getaddrinfo"


# In pytest.


@pytest.fixture
def told(run: Callable[..., pytest.RunResult], folder: Path) -> Callable[..., str]:
    """Runs a config that imports a module with this text, and returns the output."""

    def resolve(text: str, *options: str) -> str:
        (folder / "reaching.py").write_text(text)
        with (folder / "train.gin").open("a") as config:
            config.write("\nimport reaching\n")
        result = run("train.gin::resolve", *options)
        result.assert_outcomes(failed=1)
        return " ".join(result.stdout.str().split())

    return resolve


def test_a_config_whose_code_reaches_out_is_told(told: Callable[..., str]) -> None:
    shown = told("import urllib.request as r\n\nr.urlopen('http://tasks.example.com/list')\n", "--t5x-gcs=off")
    assert f"loopback only, not tasks.example.com, port 80; {ADVICE}" in shown


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_it_is_told_by_the_emulated_proxy(told: Callable[..., str], scheme: str) -> None:
    pytest.importorskip("httptools", reason="the extra google is not installed")
    shown = told(f"import urllib.request as r\n\nr.urlopen('{scheme}://tasks.example.com/list')\n")
    where = {"http": "tasks.example.com", "https": "tasks.example.com:443"}[scheme]
    assert f" t5x-harness refuses {where}: only Google's API hosts are emulated here" in shown
    assert " nothing passes through to the network" in shown
    assert f"; {ADVICE}" in shown


def test_the_marker_and_the_option_are_documented(pytester: pytest.Pytester) -> None:
    pytester.runpytest_subprocess("--markers").stdout.fnmatch_lines(["@pytest.mark.network(): lets this test *"])
    pytester.runpytest_subprocess("--help").stdout.fnmatch_lines(["*--t5x-network=*", "*t5x_network (string):*"])


TEST = """
import socket

import pytest
from t5x_harness.plugin import marks


@pytest.fixture(autouse=True)
def exercised(request):
    marks.count(request.node, marks.EXERCISED, 1)


def reach():
    with socket.socket() as client:
        client.settimeout(0.01)
        return client.connect_ex(("192.0.2.1", 9))


@pytest.mark.smoke
def test_smoke():
    reach()


@pytest.mark.smoke
@pytest.mark.network
def test_marked():
    reach()


def test_other():
    reach()
"""


@pytest.mark.parametrize(
    ("arguments", "ini", "failed"),
    [
        ((), "", 1),
        (("--t5x-network=forbid",), "", 1),
        (("--t5x-network=allow",), "", 0),
        ((), "t5x_network = allow", 0),
        (("--t5x-network=forbid",), "t5x_network = allow", 1),
    ],
)
def test_smoke_tests_reach_loopback_only(
    pytester: pytest.Pytester, arguments: tuple[str, ...], ini: str, failed: int
) -> None:
    pytester.makeini(f"[pytest]\n{ini}")
    pytester.makepyfile(TEST)
    result = pytester.runpytest_subprocess(*arguments)
    result.assert_outcomes(passed=3 - failed, failed=failed)
    if failed:
        result.stdout.fnmatch_lines(
            [f"*NetworkForbidden: ?Errno 13? smoke runs and tests reach loopback only, not {OUTSIDE}, port 9; {ADVICE}"]
        )


def test_a_marker_with_arguments_fails_its_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n\n@pytest.mark.smoke\n@pytest.mark.network('gs')\ndef test_it():\n    pass\n")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*.py:4: use @pytest.mark.network, which takes no arguments; not network('gs')"])
