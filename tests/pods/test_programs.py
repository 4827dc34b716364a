"""A command runs on each host of a pod, and ends on all of them when it fails on one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXEC = [sys.executable, "-m", "t5x_harness", "exec"]
OF_HOST = "import os; print(*(os.environ[name] for name in {names!r}), os.getcwd())"


def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "T5X_HARNESS_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder / "tmp")}
    (folder / "tmp").mkdir(exist_ok=True)
    return subprocess.run(
        [*EXEC, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def on_each(code: str, *options: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return run(*options, "--", sys.executable, "-S", "-c", code, folder=folder)


def test_each_host_has_its_place_its_devices_and_its_folder(tmp_path: Path) -> None:
    names = ["TPU_WORKER_ID", "T5X_HARNESS_POD", "JAX_NUM_CPU_DEVICES", "TMPDIR"]
    done = on_each(OF_HOST.format(names=names), "--hosts=4", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = sorted(line.split() for line in done.stdout.splitlines())
    assert [line[:3] for line in lines] == [["host", f"{number}:", f"{number}"] for number in range(4)]
    assert [line[3].split(",")[1:] for line in lines] == [["4", str(number)] for number in range(4)]
    assert {line[4] for line in lines} == {"8"}
    assert len({line[5] for line in lines}) == 4
    assert {line[6] for line in lines} == {str(tmp_path)}
    assert [*(tmp_path / "tmp").iterdir()] == []
    said = "t5x-harness exec: v3-32: 4x4 chips, 32 devices (TPU v3), 4 hosts: a process each, with 8 devices"
    assert done.stderr.strip() == said


def test_a_host_that_fails_ends_the_others(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys, time\n"
        "if os.environ['TPU_WORKER_ID'] == '1': raise ValueError('no data')\n"
        "subprocess.run([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])"
    )
    done = on_each(code, "--slice=v4-16", "--hosts", folder=tmp_path)
    assert done.returncode == 1
    *_, first, second = done.stderr.strip().splitlines()
    assert first == "t5x-harness exec: host 1 of 2 exited with status 1; ended with it: host 0"
    assert second == "  RUN01: host 1 stopped with ValueError: no data, raised at <string>:2"


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os._exit(7)"])
def test_the_exit_status_is_that_of_the_host(tmp_path: Path, end: str) -> None:
    code = f"import os\nif os.environ['TPU_WORKER_ID'] == '1': {end}"
    done = on_each(code, "--hosts=2", folder=tmp_path)
    assert done.returncode == (7 if "7" in end else 137)
    how = "exited with status 7" if "7" in end else "was killed by SIGKILL (out of memory?)"
    assert f"host 1 of 2 {how}" in done.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--hosts"], "--hosts: v3-8 has one host, so that there is no pod to emulate; name a slice of several hosts"),
        (["--hosts=3"], "--hosts=3: no slice has 3 hosts"),
        (["--slice=v3-8", "--hosts=4"], "--hosts=4: v3-8 has 1 host; v4-32, v5e-16, v5p-32 have 4"),
        (["--slice=none", "--hosts"], "--hosts: name the slice whose hosts run the command, not none"),
        (["--slice=v3-512", "--hosts"], "--hosts: v3-512 has 64 hosts, and a pod has at most 32 here"),
    ],
)
def test_a_pod_that_cannot_be_here_is_wrong_usage(tmp_path: Path, options: list[str], says: str) -> None:
    done = on_each("", *options, folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"t5x-harness exec: {says}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_pod_that_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    words = [*EXEC, "--hosts=2", "--", sys.executable, "-S", "-c", code]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as pod:
        assert pod.stdout is not None
        pids = [int(pod.stdout.readline().split()[-1]) for _ in range(2)]
        pod.send_signal(number)
        pod.wait(60)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and any(Path(f"/proc/{pid}/cwd").exists() for pid in pids):
            time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}/cwd").exists() for pid in pids)


@pytest.mark.journey
def test_hosts_that_all_wait_say_where(tmp_path: Path) -> None:
    code = "import os, time\ntime.sleep(12 if os.environ['TPU_WORKER_ID'] == '1' else 11)"
    done = run("--hosts=2", "--", sys.executable, "-c", code, folder=tmp_path)
    assert done.returncode == 0
    assert done.stderr.count("no host has used a core for ") == 1
    lines = [line for line in done.stdout.splitlines() if 'File "<string>", line 2 in <module>' in line]
    assert sorted(line[:7] for line in lines) == ["host 0:", "host 1:"]


@pytest.mark.journey
def test_a_program_that_fails_on_one_host_does_not_wait_for_the_others(tmp_path: Path) -> None:
    """With JAX, whose shutdown barrier would keep both for minutes."""
    (tmp_path / "program.py").write_text(
        "import sys\nimport jax\nfrom jax.experimental.multihost_utils import sync_global_devices\n"
        "sync_global_devices('begin')\n"
        "if jax.process_index() == 1: sys.exit(4)\n"
        "sync_global_devices('end')\n"
    )
    done = run("--hosts=2", "--", sys.executable, "program.py", folder=tmp_path)
    assert done.returncode == 4
    assert "t5x-harness exec: host 1 of 2 exited with status 4" in done.stderr


@pytest.mark.journey
def test_a_program_that_never_asks_for_devices_is_named(tmp_path: Path) -> None:
    code = "import os\nif os.environ['TPU_WORKER_ID'] == '0':\n    import jax\n    jax.devices()"
    done = run("--hosts=2", "--", sys.executable, "-c", code, folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "t5x-harness exec: host 1 of 2 has ended without asking JAX for devices, and host 0 cannot start without it; "
        "ended with it: host 0"
    )
