"""``ssh`` and ``scp`` to workers of TPU VMs, which are processes with a home for each worker."""

import concurrent.futures
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from asking import run_command
from cloud_tpu import ZONE, CloudTpu, has_ended

from t5x_harness.google.environment import with_programs
from t5x_harness.google.session import EmulatedCloud
from t5x_harness.google.tpu.remote_shell import read_arguments

Shell = Callable[..., subprocess.CompletedProcess[str]]


def addresses(node: Any) -> list[str]:
    return [endpoint["ipAddress"] for endpoint in node["networkEndpoints"]]


@pytest.fixture
def host(tpu: Any) -> str:
    """Returns the address of a TPU VM ``one``, which has one worker."""
    return addresses(tpu.create("one"))[0]


def test_each_worker_has_its_own_home_and_says_which_it_is(tpu: Any, shell: Shell) -> None:
    node = tpu.create("pod", "v4-16")
    hosts = addresses(node)
    command = (
        'echo "$TPU_WORKER_ID $USER $TPU_WORKER_HOSTNAMES"; echo "$HOME"; pwd; echo $JAX_NUM_CPU_DEVICES; date > mine'
    )
    with concurrent.futures.ThreadPoolExecutor() as pool:
        runs = list(pool.map(lambda host: shell("ssh", "-T", f"me@{host}", "--", command), hosts))
    assert [run.returncode for run in runs] == [0, 0], runs
    said = [run.stdout.splitlines() for run in runs]
    assert [lines[0] for lines in said] == [f"{worker} me {','.join(hosts)}" for worker in range(2)]
    homes = [lines[1] for lines in said]
    assert homes == [lines[2] for lines in said]
    assert len(set(homes)) == 2
    assert [lines[3] for lines in said] == ["4", "4"]
    assert all(Path(home, "mine").is_file() for home in homes)
    tpu("DELETE", f"{ZONE}/nodes/pod")
    assert not any(Path(home).exists() for home in homes)


def test_the_command_s_status_and_input_are_its_own(host: str, shell_environment: Mapping[str, str]) -> None:
    words = ("ssh", "-o", "StrictHostKeyChecking=no", "-i", "key", host, "cat >&2; exit 7")
    done = run_command(*words, env=shell_environment, typed="words")
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "words")


def test_nothing_of_the_user_s_own_environment_is_on_a_worker(host: str, shell: Shell) -> None:
    done = shell("ssh", host, "echo ${SECRET-unset} $STORAGE_EMULATOR_HOST", SECRET="mine")
    assert done.stdout.startswith("unset http://127.0.0.1:")


def test_what_runs_in_the_background_goes_with_the_tpu_vm(tpu: Any, host: str, shell: Shell) -> None:
    done = shell("ssh", host, "nohup sh -c 'sleep 600 & sleep 600' > /dev/null 2>&1 & echo $!")
    process = Path(f"/proc/{done.stdout.strip()}")
    assert process.exists()
    tpu("POST", f"{ZONE}/nodes/one:stop", {})
    assert has_ended(process)
    stopped = shell("ssh", host, "true")
    assert stopped.returncode == 255
    assert stopped.stderr == f"t5x-harness: {host}: the TPU VM {ZONE}/nodes/one is STOPPED, not READY\n"
    tpu("POST", f"{ZONE}/nodes/one:start", {})
    assert shell("ssh", host, "ls -d $HOME").returncode == 0
    tpu("DELETE", f"{ZONE}/nodes/one")
    gone = shell("ssh", host, "true")
    assert (gone.returncode, gone.stderr) == (
        255,
        f"t5x-harness: {host}: no TPU VM of this session has a worker there any more\n",
    )


# A process without its parent, session, folder and environment. Its pid is written to a file for the test.
ON_ITS_OWN = "env -i {setsid} /bin/sh -c 'cd /; echo $$ > {file}; exec {sleep} 600' > /dev/null 2>&1 < /dev/null &"


def on_its_own(file: Path) -> str:
    return ON_ITS_OWN.format(setsid=shutil.which("setsid"), sleep=shutil.which("sleep"), file=file)


def process_in(file: Path) -> Path:
    """Waits until a process has written its pid, and returns its folder in /proc."""
    while not (file.exists() and file.read_text().endswith("\n")):
        time.sleep(0.02)
    return Path(f"/proc/{file.read_text().strip()}")


def test_what_has_left_everything_behind_goes_with_its_tpu_vm_alone(tpu: Any, shell: Shell, tmp_path: Path) -> None:
    (host,), (other,) = (addresses(tpu.create(name)) for name in ("one", "other"))
    for each, name in ((host, "first"), (other, "second")):
        assert shell("ssh", each, on_its_own(tmp_path / name)).returncode == 0
    process, kept = process_in(tmp_path / "first"), process_in(tmp_path / "second")
    tpu("DELETE", f"{ZONE}/nodes/one")
    assert has_ended(process)
    assert not has_ended(kept)
    tpu("POST", f"{ZONE}/nodes/other:stop", {})
    assert has_ended(kept)


def test_a_deletion_ends_the_command_that_runs(
    tpu: Any, host: str, shell_environment: Mapping[str, str], tmp_path: Path
) -> None:
    words = ["ssh", host, f"echo $$ > {tmp_path}/pid; trap '' TERM HUP INT; while :; do sleep 1; done"]
    with subprocess.Popen(words, env=dict(shell_environment)) as running:
        process = process_in(tmp_path / "pid")
        tpu("DELETE", f"{ZONE}/nodes/one")
        assert running.wait() == -signal.SIGKILL
        assert has_ended(process)


def test_many_log_in_at_once_while_the_tpu_vm_is_deleted(tpu: Any, host: str, shell: Shell, tmp_path: Path) -> None:
    """Each login is refused or killed, and no process is left behind."""
    pids = tmp_path / "pids"
    pids.mkdir()

    def log_in(number: int) -> int:
        return shell("ssh", host, f"echo $$ > {pids}/{number}; exec sleep 600").returncode

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        running = [pool.submit(log_in, number) for number in range(6)]
        while not any(pids.iterdir()):
            time.sleep(0.01)
        tpu("DELETE", f"{ZONE}/nodes/one")
        assert {each.result() for each in running} <= {-signal.SIGKILL, 255}
    assert all(has_ended(Path(f"/proc/{file.read_text().strip() or 0}")) for file in pids.iterdir())


def test_two_log_in_first_at_once(host: str, shell: Shell) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        homes = list(pool.map(lambda _: shell("ssh", host, "cd && pwd && python3 -c 'print(1)'").stdout, range(4)))
    assert len(set(homes)) == 1
    assert homes[0].endswith("/home\n1\n")


def test_programs_of_root_get_no_rights_and_login_shells_keep_the_worker_s_path(host: str, shell: Shell) -> None:
    script = "grep -E 'CapEff|NoNewPrivs' /proc/self/status; bash -lc 'command -v sudo apt; which -a python'"
    capabilities, rights, sudo, apt, *pythons = shell("ssh", host, script).stdout.split("\n")
    assert rights.split()[-1] == "1"
    assert not int(capabilities.split()[-1], 16) & ~0b11110  # root's rights to other users' files
    assert sudo.endswith("/0/bin/sudo")
    assert apt.endswith("/0/bin/apt")
    assert any(python.endswith("/0/home/.python/bin/python") for python in pythons)


WRITING = """
exec 2> /dev/null
echo x > {own}/file && mkdir {own}/folder && mv {own}/file {own}/folder && cat {own}/folder/file
echo x > /dev/null && echo y >> /dev/stdout
for each in {other}/file; do echo z >> $each || true > $each || rm -f $each || mv $each {own} || ln $each {own}; done
mkdir {other}/folder; ln -s x {other}/link; mv {own}/folder {other}; cat {other}/file
"""


def test_files_are_written_in_a_worker_s_own_folders_alone(tmp_path: Path) -> None:
    """The kernel enforces this for every program, even root's."""
    if not has_landlock():
        pytest.skip("this kernel has no Landlock")
    own, other, output = tmp_path / "own", tmp_path / "other", tmp_path / "output"
    for folder in (own, other):
        folder.mkdir()
    (other / "file").write_text("kept\n")
    words = ["/bin/sh", "-c", WRITING.format(own=own, other=other)]
    confined = (
        "from t5x_harness.google.tpu import remote_shell as it; import os; it._SHARED = ('/dev/null',); "
        f"it._confine(1 << 40, [{str(own)!r}]); os.execv('/bin/sh', {words!r})"
    )
    with output.open("a") as file:
        environment = {**os.environ, "TMPDIR": str(own)}
        subprocess.run([sys.executable, "-c", confined], env=environment, stdout=file, check=True)
    assert output.read_text().splitlines() == ["x", "y", "kept"]
    assert [path.name for path in other.iterdir()] == ["file"]


def test_a_worker_logs_in_to_another(tpu: Any, shell: Shell) -> None:
    first, second = addresses(tpu.create("pod", "v4-16"))
    assert shell("ssh", first, f"ssh {second} 'echo $TPU_WORKER_ID > mine'").returncode == 0
    assert shell("ssh", second, "cat mine").stdout == "1\n"


@pytest.mark.journey
def test_one_worker_alone_says_for_whom_it_waits_and_a_second_program_of_it_is_refused(
    tpu: Any, shell: Shell, shell_environment: Mapping[str, str]
) -> None:
    hosts = addresses(tpu.create("pod", "v4-32"))
    words = ["ssh", hosts[1], "exec python3 -c 'import jax; jax.devices()'"]
    with subprocess.Popen(words, env=dict(shell_environment), stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr
        said = []
        while not said or "waits for" not in said[-1]:
            said.append(running.stderr.readline())
            assert said[-1], said
        second = shell("ssh", hosts[1], "exec python3 -c 'import jax; jax.devices()'")
        assert second.returncode == 1
        assert "The TPU is already in use: another program of worker 1 of 4 has asked JAX for its" in second.stderr
        assert running.poll() is None
        tpu("DELETE", f"{ZONE}/nodes/pod")
    assert said[-1].startswith("t5x-harness: worker 1 of 4 waits for workers 0, 2, 3, where no program has asked JAX ")
    assert "prox" not in "".join(said)


def test_tmux_is_the_worker_s_own(tpu: Any, host: str, shell: Shell) -> None:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    done = shell("ssh", host, "tmux new -d 'sleep 600' && tmux display -p '#{socket_path} #{pid}'")
    socket, pid = done.stdout.split()
    assert "/0/tmp/tmux-" in socket
    tpu("DELETE", f"{ZONE}/nodes/one")
    assert has_ended(Path(f"/proc/{pid}"))


def test_gcloud_on_a_worker_has_a_configuration_of_its_own(host: str, shell: Shell, fake_gcs_server: Any) -> None:
    done = shell("ssh", host, "cat $CLOUDSDK_CONFIG/configurations/config_default; command -v ssh")
    assert done.stdout.splitlines()[1:3] == ["[core]", "project = t5x-harness"]
    assert done.stdout.splitlines()[3] == f"{fake_gcs_server.endpoints.folder}/bin/ssh"
    assert shell("ssh", host, "case $CLOUDSDK_CONFIG in $HOME/*) echo own; esac").stdout == "own\n"


def test_a_copy_stays_within_the_worker(host: str, shell: Shell, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "file")
    assert shell("ssh", host, f"ln -s {outside} link; ln -s /etc/hosts hosts").returncode == 0
    for place, shown in (("/etc/x", "/etc/x"), ("../../../../../../etc/x", "/etc/x"), ("hosts", "/etc/hosts")):
        done = shell("scp", "file", f"{host}:{place}")
        assert done.returncode == 255
        assert done.stderr == (
            f"t5x-harness: {host}:{place}: {os.path.realpath(shown)} is this machine's own, and not the worker's: copy "
            "to its home\n"
        )
    assert shell("scp", "-r", "tree", f"{host}:").returncode == 0
    assert shell("ssh", host, "test ! -L tree/link && cat tree/link").stdout == "x"  # as scp copies links


def test_a_copy_does_not_follow_links_among_the_files_that_are_there(host: str, shell: Shell, tmp_path: Path) -> None:
    if not has_landlock():
        pytest.skip("this kernel has no Landlock")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "hosts").write_text("mine")
    assert shell("ssh", host, "mkdir tree; ln -s /dev/zero tree/hosts").returncode == 0
    done = shell("scp", "-r", "tree", f"{host}:")
    assert done.returncode == 1
    assert "/tree/hosts': Permission denied" in done.stderr


def has_landlock() -> bool:
    return ctypes.CDLL(None).syscall(444, None, 0, 1) > 1


def begin(session: EmulatedCloud, tmp_path: Path, more: str = "") -> Path:
    """Starts a background process on a new TPU VM, and returns its folder in /proc."""
    (host,) = addresses(CloudTpu(session).create("one"))
    environment = with_programs(session.endpoints, {**os.environ, **session.environment(), "HOME": str(tmp_path)})
    words = ["ssh", host, f"{more}\nnohup sleep 600 > /dev/null 2>&1 & echo $!"]
    done = run_command(*words, env=environment)
    assert done.returncode == 0, done.stderr
    return Path(f"/proc/{done.stdout.strip()}")


def test_what_runs_in_the_background_goes_with_its_server(tmp_path: Path) -> None:
    with EmulatedCloud() as session:
        process = begin(session, tmp_path)
        assert not has_ended(process)
    assert has_ended(process)


def test_what_a_killed_server_has_left_goes_with_the_next(tmp_path: Path) -> None:
    with EmulatedCloud() as other:
        kept = begin(other, tmp_path)
        with EmulatedCloud() as session:
            process, server = begin(session, tmp_path, on_its_own(tmp_path / "pid")), session.endpoints.pid
            processes = [process, process_in(tmp_path / "pid")]
            assert not any(map(has_ended, processes))
            os.kill(server, signal.SIGKILL)
            while not has_ended(Path(f"/proc/{server}")):
                time.sleep(0.02)
        with EmulatedCloud():  # unless a server of another test, which starts at this moment, was faster
            while not all(map(has_ended, processes)):
                time.sleep(0.02)
        assert not has_ended(kept)


def test_files_are_copied_there_and_back(tpu: Any, shell: Shell, tmp_path: Path) -> None:
    first, second = addresses(tpu.create("pod", "v4-16"))
    (tmp_path / "tree/below").mkdir(parents=True)
    (tmp_path / "tree/below/file").write_text("x")
    for host in (first, second):
        assert shell("scp", "-r", "-i", "key", "tree", f"me@{host}:").returncode == 0
    assert shell("ssh", second, "rm -r tree; ls").stdout == ""
    assert shell("scp", f"{first}:tree/below/file", "back").returncode == 0
    assert (tmp_path / "back").read_text() == "x"
    assert shell("scp", "back", f"{second}:~/there").returncode == 0
    assert shell("ssh", second, "cat there").stdout == "x"
    missing = shell("scp", f"{second}:none", ".")
    assert missing.returncode == 1
    assert "none': No such file or directory" in missing.stderr


def test_other_hosts_are_the_real_programs(shell: Shell, shell_environment: Mapping[str, str], tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    for name in ("ssh", "scp"):
        (real / name).write_text(f'#!/bin/sh\necho real {name} "$@"\n')
        (real / name).chmod(0o755)
    first, *others = shell_environment["PATH"].split(os.pathsep)
    path = os.pathsep.join([first, str(real), *others])
    assert shell("ssh", "-p", "22", "me@example.org", "ls", PATH=path).stdout == "real ssh -p 22 me@example.org ls\n"
    assert shell("scp", "a", "example.org:b", PATH=path).stdout == "real scp a example.org:b\n"
    none = shell("ssh", "example.org", PATH=first)
    assert (none.returncode, none.stderr) == (255, "t5x-harness: ssh example.org: there is no ssh on this machine\n")


def test_forwarding_is_named(host: str, shell: Shell) -> None:
    done = shell("ssh", "-L", "6006:localhost:6006", host, "true")
    assert done.returncode == 0
    assert done.stderr == (
        "t5x-harness: -L 6006:localhost:6006: nothing is forwarded, as the ports of a worker are this machine's own\n"
    )


@pytest.mark.usefixtures("fake_gcs_server")
def test_others_than_the_session_s_clients_are_refused(tpu: Any) -> None:
    answer = tpu("GET", f"{ZONE}/nodes", token="fake")
    assert (answer["error"]["code"], answer["error"]["status"]) == (401, "UNAUTHENTICATED")


def test_what_is_not_emulated_is_named(tpu: Any) -> None:
    answer = tpu("POST", f"{ZONE}/nodes/t:performMaintenance", {})
    assert answer["error"]["message"] == (
        f"t5x-harness does not emulate POST tpu.googleapis.com/v2/{ZONE}/nodes/t:performMaintenance; of Cloud TPU it "
        "has nodes, queued resources, accelerator types, runtime versions and operations"
    )


@pytest.mark.parametrize(
    ("program", "words", "options", "left"),
    [
        (
            "ssh",
            "-T -i key -o A=b -p22 me@h -- ls -l",
            [("T", ""), ("i", "key"), ("o", "A=b"), ("p", "22")],
            "me@h ls -l",
        ),
        ("ssh", "h ls -l", [], "h ls -l"),
        ("ssh", "h -t -v bash -l", [("t", ""), ("v", "")], "h bash -l"),
        ("scp", "-rC a -i key h:b", [("r", ""), ("C", ""), ("i", "key")], "a h:b"),
    ],
)
def test_arguments(program: str, words: str, options: list[tuple[str, str]], left: str) -> None:
    assert read_arguments(program, words.split()) == (options, left.split())
