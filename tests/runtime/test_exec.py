"""`t5x-harness exec -- COMMAND` runs any command with the harness's t5x, devices and mesh."""

import ast
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from t5x_harness.execute import program_setup
from t5x_harness.runtime.choice import find_runtime, program_environment
from t5x_harness.runtime.import_hooks import BOOTSTRAP_PATH
from t5x_harness.slices.slice import get_slice

MAIN = (
    "import argparse, sys; from t5x_harness.commands import exec as exec_command;"
    "parser = argparse.ArgumentParser(); exec_command.add_arguments(parser);"
    "sys.exit(exec_command.main(parser.parse_args()))"
)
EXEC = (sys.executable, "-c", MAIN)


Done = subprocess.CompletedProcess[str]


def python(*words: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> Done:
    words = (sys.executable, *words)
    return subprocess.run(words, check=False, capture_output=True, text=True, cwd=cwd, env=env, timeout=120)


def run_exec(*arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> Done:
    return python("-c", MAIN, *arguments, cwd=cwd, env=env)


def test_modules_of_the_project_are_found(tmp_path: Path) -> None:
    modules = {"src": "of_project", "given": "of_option", "more": "of_second", "other": "of_variable"}
    for folder, name in modules.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text("")
    (tmp_path / "pyproject.toml").write_text('[tool.t5x_harness]\npython_path = ["src"]\n')
    program = "import of_project, of_option, of_second, of_variable; print('found')"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "other")}
    words = ("--slice=none", "--python-path=given,more", "--", sys.executable, "-c", program)
    done = run_exec(*words, cwd=tmp_path, env=environment)
    assert (done.stdout, done.stderr) == ("found\n", "")


def test_python_finds_t5x_and_the_devices(machine) -> None:
    program = "import os, t5x, jax; print(t5x.__file__, jax.device_count(), jax.devices()[0].platform)"
    done = machine.run(program, before=(*EXEC, "--slice", "v4-8", "--"))
    file, count, platform = done.stdout.split()
    assert file.endswith("embedded/t5x/__init__.py")
    assert (count, platform) == ("4", "cpu")


def test_jax_there_writes_whole_entries_into_the_compile_cache(machine, tmp_path: Path) -> None:
    program = (
        "from jax._src.lru_cache import LRUCache;"
        f"cache = LRUCache({str(tmp_path)!r}, max_size=-1); cache.put('a', b'half'); cache.put('a', b'all')"
    )
    machine.run(program, before=(*EXEC, "--slice", "v4-8", "--"))
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a-cache", "all")]


def test_programs_round_as_a_tpu_where_they_are_to() -> None:
    program = "import jax.numpy as jnp; print((jnp.full((2, 2), 257.0) @ jnp.eye(2))[0, 0])"
    both = 'python -c "$0"; T5X_HARNESS_TPU_NUMERICS= python -c "$0"'
    done = run_exec("--slice=none", "--tpu-numerics", "--", "sh", "-c", both, program)
    assert done.stdout.split() == ["256.0", "257.0"], done.stderr


def test_a_variable_that_is_neither_on_nor_off_starts_no_command() -> None:
    done = run_exec("--", "echo", "started", env={**os.environ, "T5X_HARNESS_TPU_NUMERICS": "maybe"})
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "t5x-harness exec: T5X_HARNESS_TPU_NUMERICS must be 1 or 0 (or on, off, true, false, yes, no), not 'maybe'\n"
    )


def test_an_installed_t5x_wins_there_too_also_in_processes_of_processes(machine) -> None:
    package = machine.package("work/t5x", label="editable")
    machine.editable("site", package)
    program = f"""
    import subprocess, sys
    inner = "import site; site.addsitedir({str(machine.root / "site")!r}); import t5x; print(t5x.LABEL)"
    subprocess.run([sys.executable, "-c", inner], check=True)
    """
    assert machine.run(program, before=(*EXEC, "--"), cwd="work").stdout.strip() == "editable"


def test_embedded_wins_over_a_checkout_when_asked_for(machine) -> None:
    machine.package("checkout", label="checkout")
    program = "import t5x; print(getattr(t5x, 'LABEL', 'embedded'))"
    asked = machine.run(program, path=("checkout",), before=(*EXEC, "--t5x-runtime", "embedded", "--"))
    assert asked.stdout.strip() == "embedded"
    assert machine.run(program, path=("checkout",), before=(*EXEC, "--")).stdout.strip() == "checkout"


@pytest.mark.parametrize("runtime", ["auto", "installed"])
def test_the_working_folders_t5x_is_that_of_scripts_elsewhere_too(machine, runtime: str) -> None:
    """``python scripts/train.py`` has the script's folder on its import path, and not the working folder."""
    machine.package("work", label="working folder")
    (machine.root / "work/scripts").mkdir()
    (machine.root / "work/scripts/train.py").write_text("import t5x; print(getattr(t5x, 'LABEL', 'embedded'))")
    command = f"{sys.executable} scripts/train.py; cd /; {sys.executable} {machine.root}/work/scripts/train.py"
    program = f"import subprocess; subprocess.run({command!r}, shell=True)"
    asked = machine.run(program, before=(*EXEC, "--t5x-runtime", runtime, "--"), cwd="work")
    assert asked.stdout.splitlines() == ["working folder", "working folder"]


def test_a_t5x_on_a_programs_own_import_path_comes_before_the_working_folders(machine) -> None:
    machine.package("work", label="working folder")
    machine.package("other", label="other")
    program = "import subprocess, sys; subprocess.run([sys.executable, '-P', '-c', 'import t5x; print(t5x.LABEL)'])"
    assert machine.run(program, path=("other",), before=(*EXEC, "--"), cwd="work").stdout.strip() == "other"


def test_a_folder_of_python_path_may_hold_the_installed_t5x(machine) -> None:
    machine.package("checkout", label="python path")
    (machine.root / "pyproject.toml").write_text('[tool.t5x_harness]\npython_path = ["checkout"]\n')
    program = "import t5x; print(t5x.LABEL)"
    for options in ([], ["--python-path=checkout"]):
        before = (*EXEC, "--t5x-runtime=installed", *options, "--")
        assert machine.run(program, before=before).stdout.strip() == "python path"
        (machine.root / "pyproject.toml").unlink(missing_ok=True)


def test_importing_partitioning_installs_the_mesh_of_the_slice(machine) -> None:
    """The module is unchanged except for the functions that see the slice; its loader is untouched."""
    package = machine.package("checkout", label="checkout")
    (package / "partitioning.py").write_text(
        "import jax\n"
        "def default_mesh(n, submesh=None): return [d.device_kind for d in jax.devices()]\n"
        "def get_mesh(*a): pass\n"
        "def with_sharding_constraint(x, axis_resources): return jax.devices()[0].platform\n"
    )
    program = """
    from t5x import partitioning
    import jax
    print(partitioning.with_sharding_constraint(1, 2), jax.devices()[0].platform)
    print(type(partitioning.__loader__).__name__, type(partitioning.__spec__.loader).__name__)
    """
    out = machine.run(program, path=("checkout",), before=(*EXEC, "--")).stdout.split()
    assert out == ["tpu", "cpu", "SourceFileLoader", "SourceFileLoader"]


def test_a_shadowed_sitecustomize_runs_and_is_what_programs_import(machine) -> None:
    (machine.root / "theirs").mkdir()
    (machine.root / "theirs" / "sitecustomize.py").write_text("MARK = 'theirs'\nprint('ran')\n")
    program = "import sitecustomize, t5x; print(sitecustomize.MARK, sitecustomize.__file__)"
    done = machine.run(program, path=("theirs",), before=(*EXEC, "--"))
    assert done.stdout.split() == ["ran", "ran", "theirs", str(machine.root / "theirs" / "sitecustomize.py")]


def test_a_broken_sitecustomize_of_the_user_does_not_cost_the_harness(machine) -> None:
    (machine.root / "theirs").mkdir()
    (machine.root / "theirs" / "sitecustomize.py").write_text("raise KeyError('broken')\n")
    done = machine.run("import t5x; print(t5x.__file__)", path=("theirs",), before=(*EXEC, "--"))
    assert "embedded" in done.stdout
    assert "KeyError: 'broken'" in done.stderr


def test_a_python_without_the_harness_gets_it_from_its_folder(tmp_path: Path) -> None:
    """-S stands for another environment: no site-packages, so no t5x_harness except the one that exec belongs to."""
    environment = program_environment(get_slice("v3-8"), find_runtime("embedded"))
    program = "import sitecustomize; import t5x; print(t5x.__file__)"
    done = python("-S", "-c", program, env=environment, cwd=tmp_path)
    assert done.stdout.strip().endswith("embedded/t5x/__init__.py"), done.stderr


def test_a_program_in_a_python_of_its_own_notices_nothing(tmp_path: Path) -> None:
    """This is like gcloud, whose Python has none of the modules that stand-ins import; -S stands for it."""
    environment = {
        **program_environment(get_slice("v3-8"), find_runtime("embedded")),
        **program_setup.variables(str(tmp_path)),
        "T5X_HARNESS_GCS_ROOT": str(tmp_path),
    }
    done = python("-S", "-c", "import sitecustomize; print('ran')", env=environment)
    assert (done.stdout, done.stderr, done.returncode) == ("ran\n", "", 0)


def test_what_is_wrong_with_the_harness_itself_is_seen() -> None:
    environment = {
        **program_environment(None, find_runtime("embedded")),
        "T5X_HARNESS_START": "t5x_harness.no_such_module:start",
    }
    done = python("-c", "pass", env=environment)
    assert "No module named 't5x_harness.no_such_module'" in done.stderr


def test_an_old_python_is_silent_until_it_imports_t5x() -> None:
    """Every Python from 3.5 on can parse the file; only the version is old here."""
    source = Path(BOOTSTRAP_PATH, "sitecustomize.py")
    ast.parse(source.read_text(), feature_version=(3, 5))
    program = f"""
    import sys
    sys.version_info = (3, 9, 0, "final", 0)
    exec(compile(open({str(source)!r}).read(), {str(source)!r}, "exec"), {{"__file__": {str(source)!r}}})
    print("silent", file=sys.stderr)
    try:
        import t5x
    except ImportError:
        pass
    try:
        import t5x.main
    except ImportError:
        pass
    """
    done = python("-I", "-c", textwrap.dedent(program))
    assert done.returncode == 0, done.stderr
    silent, *said = done.stderr.splitlines()
    assert silent == "silent"
    assert said == [
        f"t5x-harness: {sys.executable} is Python 3.9; without Python 3.11 it has neither the harness's t5x nor "
        "its mesh"
    ]


@pytest.mark.parametrize("words", ["../../t5x/t5x/train.py --run", "-u /gone/t5x/train.py"])
def test_scripts_of_a_clone_that_is_not_there_are_named_in_scripts_too(tmp_path: Path, words: str) -> None:
    (tmp_path / "start.sh").write_text(f"python3 {words}\n")
    done = run_exec("--slice=none", "--", "bash", "start.sh", cwd=tmp_path)
    script = next(word for word in words.split() if word.endswith(".py"))
    said = f"t5x-harness: there is no file {script}; T5X is imported by its name here: python3 -m t5x.train …\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_start_up_loads_nothing_heavy_and_no_more_than_needed() -> None:
    program = (
        "import sys; print(*sorted(m for m in sys.modules"
        " if m.partition('.')[0] in ('t5x_harness', 'dataclasses', 'jax', 'numpy', 't5x', 'argparse', 'json')))"
    )
    plain = python("-c", program).stdout.split()
    under = run_exec("--", sys.executable, "-c", program)
    assert set(under.stdout.split()) - set(plain) == {
        "t5x_harness",
        "t5x_harness.bootstrap",
        "t5x_harness.bootstrap.start",
        "t5x_harness.runtime",
        "t5x_harness.runtime.import_hooks",
        "t5x_harness.system",
        "t5x_harness.system.after_import",
        "t5x_harness.upstream",
        "t5x_harness.upstream.jax",
        "t5x_harness.variables",
        "t5x_harness.version",
    }


def test_the_command_replaces_exec_and_its_status_is_passed_on() -> None:
    assert run_exec("--", "sh", "-c", "exit 7").returncode == 7
    assert run_exec("--", "sh", "-c", "kill -TERM $$").returncode == -15
    assert (
        run_exec("--", "sh", "-c", 'printf "%s|" "$@"', "x", "a b", "--slice", "$HOME").stdout == "a b|--slice|$HOME|"
    )


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (
            "t5x.train_unfragmented",
            "No module named 't5x.train_unfragmented': no T5X has it; use t5x.main --run_mode=train",
        ),
        ("t5x.tasks", "the embedded T5X runtime has no t5x.tasks: it registers nothing in the public T5X"),
    ],
)
def test_programs_that_are_not_there_are_named_with_what_is(module: str, said: str) -> None:
    done = run_exec("--t5x-runtime=embedded", "--", sys.executable, "-m", module)
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_script_of_the_users_of_such_a_name_is_run(tmp_path: Path) -> None:
    (tmp_path / "t5x").mkdir()
    (tmp_path / "t5x/train.py").write_text("print('mine')\n")
    assert run_exec("--slice=none", "--", sys.executable, f"{tmp_path}/t5x/train.py").stdout == "mine\n"


def test_a_fork_may_have_a_program_of_that_name(machine) -> None:
    fork = machine.package("fork", label="fork")
    (fork / "train_unfragmented.py").write_text("print('trains')\n")
    program = "import runpy; runpy.run_module('t5x.train_unfragmented')"
    assert machine.run(program, path=("fork",), before=(*EXEC, "--")).stdout == "trains\n"


START = """
export PYTHONPATH=$PWD/mine
python3 -c 'import t5x, mine; print(t5x.__file__, mine.NAME)'
env python -c 'import os, t5x; print(t5x.__file__, os.environ["PYTHONPATH"])'
PYTHONPATH= sh -c 'python "$@"' sh told.py "a  b" '*'
python3 told.py < /dev/null | cat
python nothing.py
echo $? $(command -v python9)
"""


def test_t5x_stays_where_a_script_sets_the_import_path(tmp_path: Path) -> None:
    """Start scripts of T5X projects do this; the Python is the one that the script would have found."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "mine.py").write_text("NAME = 'mine'\n")
    (tmp_path / "told.py").write_text("import sys, t5x; print(sys.argv[1:], t5x.__name__, sys.executable)\n")
    (tmp_path / "start.sh").write_text(START)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("python", "python3"):
        (tools / name).symlink_to(sys.executable)
    path = f"{tools}:{os.environ['PATH']}"
    done = run_exec("--", "bash", "start.sh", cwd=tmp_path, env={**os.environ, "PATH": path})
    imported, by_env, told, piped, missing = done.stdout.splitlines()
    assert imported.endswith("embedded/t5x/__init__.py mine"), done.stderr
    assert by_env.endswith(f"bootstrap:{tmp_path / 'mine'}")
    assert "embedded/t5x" in by_env
    assert told == f"['a  b', '*'] t5x {tools / 'python'}"
    assert piped == f"[] t5x {tools / 'python3'}"
    assert missing == "2"
    assert "can't open file" in done.stderr


def test_t5x_stays_where_a_program_gives_pythons_an_import_path(tmp_path: Path) -> None:
    """A launcher in Python starts its own interpreter; a launcher that clears the environment gets what it asks for."""
    launcher = """
    import os, subprocess, sys
    say = [sys.executable, "-c", "import importlib.util, os; print(importlib.util.find_spec('t5x') is not None)"]
    subprocess.run(say, env={**os.environ, "PYTHONPATH": "mine"}, check=True)
    os.environ["PYTHONPATH"] = "mine"
    subprocess.run(say, check=True)
    print(os.environ["PYTHONPATH"], flush=True)
    subprocess.run([*say[:1], "-S", *say[1:]], env={}, check=True)
    """
    (tmp_path / "launcher.py").write_text(textwrap.dedent(launcher))
    done = run_exec("--t5x-runtime=embedded", "--", sys.executable, "launcher.py", cwd=tmp_path)
    assert done.stdout.split() == ["True", "True", "mine", "False"], done.stderr


def test_two_harnesses_on_the_path_do_not_start_each_others_python_for_ever(tmp_path: Path) -> None:
    """This happens if a job that one harness started runs the command of another."""
    second = shutil.copytree(BOOTSTRAP_PATH, tmp_path / "second")
    folders = [Path(BOOTSTRAP_PATH, "programs"), Path(second, "programs"), Path(sys.executable).parent]
    path = os.pathsep.join(map(str, folders))
    done = subprocess.run(
        ["python", "-S", "-c", "print('once')"],
        env={"PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "once\n"


def test_a_python_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    shell = shutil.which("sh")
    assert shell
    done = run_exec("--", shell, "-c", "PATH=${PATH%%:*}; python3", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (127, "python3: command not found\n")


def test_flags_and_folders_of_the_user_are_kept() -> None:
    base = {
        "PYTHONPATH": f"{os.sep}mine{os.pathsep}{os.sep}yours",
        "XLA_FLAGS": "--xla_dump_to=/x --xla_force_host_platform_device_count=3",
        "JAX_PLATFORMS": "tpu",
        "HOME": "/home/me",
        "PATH": "/bin::/usr/bin",
    }
    first = program_environment(get_slice("v3-8"), find_runtime("embedded"), "auto", base)
    again = program_environment(get_slice("v3-32"), find_runtime("embedded"), "embedded", first)
    assert first["PYTHONPATH"].split(os.pathsep)[1:] == ["/mine", "/yours"]
    assert again["PYTHONPATH"] == first["PYTHONPATH"]
    assert first["PATH"].split(os.pathsep, 1)[1] == "/bin::/usr/bin"
    assert again["PATH"] == first["PATH"]
    assert first["XLA_FLAGS"].split()[:2] == ["--xla_dump_to=/x", "--xla_force_host_platform_device_count=8"]
    assert sorted(again["XLA_FLAGS"].split()) == sorted(first["XLA_FLAGS"].replace("count=8", "count=32").split())
    assert [e["JAX_PLATFORMS"] for e in (first, again)] == ["cpu", "cpu"]
    assert [e["T5X_HARNESS_RUNTIME"] for e in (first, again)] == ["auto", "embedded"]
    assert [e["T5X_HARNESS_SLICE"] for e in (first, again)] == ["v3-8", "v3-32"]
    assert first["HOME"] == "/home/me"


GXM, NO_GXM = ("--", "gxm", "t5x/google/xm_launch.py"), "gxm: command not found. It launches XManager"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--", "no-such-command-here"], 127, "no-such-command-here: command not found"),
        (["--", "./plain.txt"], 126, "./plain.txt: cannot be run: Permission denied"),
        (["--", "./plain.txt/below"], 127, "./plain.txt/below: command not found"),
        # For launchers that the guides name, the message names the available command.
        ([*GXM], 127, f"{NO_GXM}; t5x-harness submit"),
        ([*GXM, "--auxiliary_job_mixtures=x"], 127, f"{NO_GXM}; t5x-harness auxiliary takes the same options"),
        (["--", "python3", "-u", "gone/xm_launch.py"], 127, "there is no file gone/xm_launch.py. It launc"),
        (
            ["--", "python3", "/gone/t5x/train.py"],
            127,
            "there is no file /gone/t5x/train.py; T5X is imported by its name",
        ),
        ([], 2, "no command: give one after --, such as t5x-harness exec -- python -m t5x.main …"),
        (["--slice", "v3-9", "--", "true"], 2, "'v3-9' is not a TPU slice: nearest names: v3-8, v3-32"),
        (["--t5x-runtime", "installed", "--", "true"], 2, "no installed T5X was found: looked for a package t5x"),
    ],
)
def test_what_cannot_be_run_is_one_line_and_a_shells_status(
    tmp_path: Path, arguments: list[str], status: int, message: str
) -> None:
    (tmp_path / "plain.txt").write_text("x")
    done = run_exec(*arguments, cwd=tmp_path)
    assert done.returncode == status
    assert done.stderr.startswith(f"t5x-harness exec: {message}")
    assert done.stderr.count("\n") == 1
