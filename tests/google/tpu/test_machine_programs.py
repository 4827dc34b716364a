"""Programs that would change this machine are replaced on a worker: fakes of the real ones must not run."""

import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from t5x_harness.google.tpu import workers

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Returns a function that runs a script with a worker's programs first on PATH, before fakes of the real ones."""
    own, machine = tmp_path / "bin", tmp_path / "machine"
    workers._write_programs(own)
    machine.mkdir()
    for name in ("sudo", "apt", "apt-get", "update-alternatives", "reboot", "docker", "git", "tool", "python", "pip3"):
        (machine / name).write_text(
            f'#!/bin/sh\necho "the machine\'s {name} $*"\n[ "$1" != clone ] && [ "$2" != absent ]\n'
        )
        (machine / name).chmod(0o755)

    def script(text: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{own}:{machine}:/usr/bin:/bin",
            "USER": "me",
            "SHELL": "/bin/sh",
            "HOME": str(tmp_path),
            "HOSTNAME": "t1v-n-0a1b2c3d-w-0",
        }
        return subprocess.run(["sh", "-c", text], env=environment, capture_output=True, text=True, check=False)

    return script


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("sudo apt-get update", 0, "apt-get update does nothing on an emulated worker"),
        ("sudo apt install -y tool", 0, "apt install does nothing on an emulated worker; this machine has tool"),
        (
            "sudo apt install -y tool no-such-package-9 another-9",
            100,
            "apt installs nothing on an emulated worker, and this machine lacks no-such-package-9, another-9: go on "
            "without, or run sudo apt install no-such-package-9 another-9 in a shell of your own",
        ),
        ("sudo -H apt remove tool", 100, "apt remove does nothing on an emulated worker"),
        ("/machine/x 2>/dev/null; sudo -E /usr/bin/apt update", 0, "apt update does nothing on an emulated worker"),
        ("sudo DEBIAN_FRONTEND=noninteractive apt-get -y upgrade", 0, "apt-get upgrade does nothing on an emulated"),
        ("sudo bash -c 'apt update'", 0, "apt update does nothing on an emulated worker"),
        ("sudo --preserve-env apt update", 0, "apt update does nothing on an emulated worker"),
        ("sudo -D / sh -c 'apt update; exit 4'", 4, "apt update does nothing on an emulated worker"),
        ("sudo -D /nowhere true", 1, "sudo: /nowhere: No such file or directory"),
        ("sudo -i apt update", 0, "apt update does nothing on an emulated worker"),
        ("sudo sudo apt update", 0, "apt update does nothing on an emulated worker"),
        ("env sudo reboot", 1, "reboot does nothing on an emulated worker: it would end this machine"),
        ("docker run -v /:/host image", 1, "docker does nothing on an emulated worker: containers would belong to"),
        ("sudo su", 1, "su: a worker has no other users, and its root would be this machine's"),
        ("sudo -u bob true", 1, "sudo: an emulated worker has no user bob"),
        ("sudo --such", 1, "sudo: option --such not recognized"),
        ("sudo update-alternatives --set nothing /x", 1, "update-alternatives does nothing on an emulated worker: it"),
    ],
)
def test_the_machine_stays_as_it_is(run: Run, command: str, status: int, said: str) -> None:
    done = run(command)
    assert (done.returncode, done.stdout) == (status, ""), done
    assert f"t5x-harness: {said}" in done.stderr


def test_what_needs_no_rights_runs_as_it_is(run: Run) -> None:
    done = run("sudo -n A=b tool 'x  y'; sudo -v; sudo sh -c 'exit 7'")
    assert (done.returncode, done.stdout) == (7, "the machine's tool x  y\n")
    assert done.stderr.startswith(
        "t5x-harness: sudo has no more rights on an emulated worker: tool runs as me, and writes to the worker's home "
        "and /tmp alone\n"
    )
    gone = run("sudo no-such-program-9")
    assert (gone.returncode, gone.stderr.splitlines()[1]) == (
        127,
        "t5x-harness: no-such-program-9: No such file or directory",
    )


def process(name: str, host: str, folder: Path) -> subprocess.Popen[bytes]:
    """Starts a program that does not end, with this name and this host name."""
    program = folder / name
    if not program.exists():
        program.symlink_to(shutil.which("sleep") or "sleep")
    return subprocess.Popen([str(program), "600"], env={"HOSTNAME": host})


@pytest.mark.parametrize("command", ["sudo pkill -KILL -f {name}", "killall -s KILL {name}", "pkill --signal 9 {name}"])
def test_a_worker_s_processes_alone_are_ended_by_their_names(run: Run, tmp_path: Path, command: str) -> None:
    if shutil.which("pgrep") is None:
        pytest.skip("pgrep is not installed")
    name = f"p{uuid.uuid4().hex[:12]}"
    hosts = ("t1v-n-0a1b2c3d-w-0", "t1v-n-0a1b2c3d-w-1")
    with process(name, hosts[0], tmp_path) as own, process(name, hosts[1], tmp_path) as other:
        try:
            done = run(f"exec {command.format(name=name)}")
            assert own.wait() == -signal.SIGKILL
            assert done.returncode == 0
            assert "ends processes of this worker alone: 1 more on this machine have such a name" in done.stderr
            assert other.poll() is None
            assert run(f"exec {command.format(name=name)}").returncode == 1
        finally:
            own.kill()
            other.kill()


def test_what_is_not_emulated_of_killing_is_refused(run: Run) -> None:
    said = run("killall -w x").stderr + run("killall -s NONE x").stderr + run("killall").stderr
    assert said.splitlines() == [
        "t5x-harness: killall: option -w not recognized, or not emulated",
        "t5x-harness: killall: NONE: there is no such signal",
        "t5x-harness: killall: which processes?",
    ]


def test_an_alternative_that_is_there_is_named(run: Run, tmp_path: Path) -> None:
    done = run("sudo update-alternatives --install /usr/bin/python python /usr/bin/python3 1")
    assert done.returncode == 0
    python = tmp_path / "machine" / "python"
    assert (
        done.stderr == f"t5x-harness: update-alternatives does nothing on an emulated worker: its python is {python}\n"
    )


@pytest.mark.parametrize(
    ("fine", "failing", "said"),
    [
        (
            "git config --global user.name me",
            "git clone https://example.org/x",
            "git clone ended with 1: an emulated worker reaches no network. Copy a folder to all workers instead: "
            "gcloud compute tpus tpu-vm scp --recurse FOLDER NAME: --worker=all",
        ),
        (
            "pip3 install present",
            "sudo pip3 install absent",
            "pip3 ended with 1: on an emulated worker it asks no index. What the environment has that t5x-harness runs "
            f"in is there already: go on without the rest, or run {sys.executable} -m pip install … in a shell of your "
            "own",
        ),
    ],
)
def test_what_needs_a_network_and_fails_says_what_to_do_instead(run: Run, fine: str, failing: str, said: str) -> None:
    assert run(f"{fine}; echo $?").stdout == f"the machine's {fine}\n0\n"
    done = run(failing)
    assert (done.returncode, done.stderr) == (1, f"t5x-harness: {said}\n")
