"""``t5x-harness exec``: runs any command in the harness's environment.

The command and every Python process that it starts find ``t5x``, have as many CPU devices as the slice has, and build
the slice's mesh over them. It works only through the environment: a folder at the front of PYTHONPATH whose
``sitecustomize`` sets up each interpreter as it starts, and one at the front of PATH whose ``python`` and ``python3``
put that folder back if a script has replaced PYTHONPATH. With ``--google``, Google's clients use an emulated Google
Cloud with Cloud Storage and Vertex AI, and paths below ``/gcs`` lead to the same buckets.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from t5x_harness.commands import xmanager
from t5x_harness.commands.arguments import USAGE
from t5x_harness.commands.shells import add_google_arguments, options_of, project_of, root_of
from t5x_harness.execute import program_setup
from t5x_harness.findings.printable import printable
from t5x_harness.google.vertex.settings import VertexOptions
from t5x_harness.runtime.choice import RuntimeChoiceError, find_runtime, folders_of, program_environment
from t5x_harness.runtime.cpu_isa import pin
from t5x_harness.settings.command_line import add_option, from_environment
from t5x_harness.settings.forms import SettingsError
from t5x_harness.settings.options import RUNS
from t5x_harness.settings.project import find_project
from t5x_harness.slices.slice import Slice, SliceError, get_slice, slices_of_hosts
from t5x_harness.spec import DEFAULT_SLICE, RuntimeChoice
from t5x_harness.variables import MODE_VARIABLE, PATCH_VARIABLE, ROOT_VARIABLE, TPU_NUMERICS_VARIABLE

EPILOG = """\
examples:
  t5x-harness exec -- python -m t5x.main --run_mode=train --gin_file=finetune.gin
  t5x-harness exec --slice=v3-32 -- python my_script.py
  t5x-harness exec --google -- python -m t5x.main --run_mode=train --gin_file=/gcs/bucket/finetune.gin
  t5x-harness exec --slice=none --google-root=cloud -- gcloud storage ls gs://bucket
                                                  any Google client, and no slice; buckets lie in cloud/buckets
  t5x-harness exec --google-root=cloud --gcs-paths=fuse -- python train.py --model_dir=/gcs/bucket/run
                                                  the same buckets at /gcs, as Cloud Storage FUSE shows them
  t5x-harness exec --hosts=4 -- bash start.sh     on each of 4 hosts of a pod (v3-32), with its own devices
  t5x-harness exec --network=forbid -- python train.py
                                                  does it need anything beyond this machine?

The command takes the place of exec, so its exit status is that of exec. Else: 2 wrong usage, 125 no
emulated Google Cloud, no FUSE or no way to forbid the network here, 126 the command cannot be run, 127 it is not found.
"""

_T5X_SCRIPTS = ("train.py", "eval.py", "infer.py", "main.py")
_NOT_HAD, _NOT_EXECUTABLE, _NOT_FOUND = 125, 126, 127


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``exec`` to a parser."""
    parser.add_argument(
        "--slice",
        metavar="NAME",
        help="TPU slice to emulate, by name or topology; none leaves the devices as they are "
        f"(default: {DEFAULT_SLICE})",
    )
    parser.add_argument(
        "--hosts",
        nargs="?",
        const=0,
        type=int,
        metavar="N",
        help="run the command once for each host of the slice, as with one ssh a worker: each with its devices, joined "
        "by jax.distributed; N chooses a slice with that many hosts if none is named. All end when one fails",
    )
    add_option(parser, "python_path")
    add_option(parser, "runtime")
    add_option(parser, "tpu_numerics")
    add_option(parser, "cpu_isa")
    parser.add_argument(
        "--google",
        action="store_true",
        help="start an emulated Google Cloud for the command: gs:// is a temporary folder, Vertex AI's jobs and what "
        "gcloud runs on TPU VMs run here, and no other host is reached; it ends with the command",
    )
    parser.add_argument(
        "--google-root", metavar="DIR", help="--google, with the buckets kept in DIR: gs://b/x is DIR/buckets/b/x"
    )
    parser.add_argument(
        "--create-buckets",
        action="store_true",
        help="--google, with buckets that are not there made when they are first used; without it they are 404, as in "
        "Google's cloud",
    )
    add_google_arguments(
        parser,
        with_standins="the command's processes, and with --google its jobs,",
        shrunk="the command's processes, and with --google in its jobs and on its TPU VMs,",
    )
    parser.add_argument(
        "--gcs-paths",
        choices=("folder", "fuse", "off"),
        help="what the command sees at /gcs: the buckets as a plain folder (folder), as Cloud Storage FUSE shows them "
        "(fuse), or nothing (off) (default: folder with --google, and in a shell of t5x-harness serve; else off)",
    )
    parser.add_argument(
        "--network",
        choices=("allow", "forbid"),
        default="allow",
        help="whether the command may reach beyond this machine; forbid has the kernel refuse it, with a line on "
        "standard error (default: allow)",
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="-- COMMAND …", help="the command and its arguments, after --"
    )


class _Refused(Exception):
    """The command is not started; the exception's arguments are the message and the exit status."""


def main(args: argparse.Namespace) -> int:
    """Replaces this process with the command; returns only if that fails.

    Returns:
      2 for a wrong option, 125 if the command's surroundings could not be set up, and as in a shell, 126 if the command
      exists but cannot be run and 127 if it is not found.
    """
    command: Sequence[str] = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        return _failed("no command: give one after --, such as t5x-harness exec -- python -m t5x.main …", USAGE)
    if (of_guides := _of_guides(command)) is not None:
        return _failed(of_guides, _NOT_FOUND)
    try:
        environment = _environment(args)
        words, environment = _with_gcs(command, environment, args.gcs_paths)
        if args.network == "forbid":
            from t5x_harness.system import network, network_filter

            # The kernel keeps this process, which becomes the command, from reaching beyond this machine, and the
            # environment has no proxies that are on other machines.
            if not network_filter.install():
                why = "this kernel lets no process ask before it connects (seccomp)"
                raise _Refused(f"--network=forbid: {why}", _NOT_HAD)
            changes = network.run_environment(allowed=False, environment=environment)
            environment = {name: value for name, value in {**environment, **changes}.items() if value is not None}
    except _Refused as refused:
        return _failed(*refused.args)
    if args.hosts is not None:
        return _on_hosts(words, environment, args)
    # Otherwise, Python's buffers would be lost with the process.
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(words[0], words, environment)
    except (FileNotFoundError, NotADirectoryError):
        return _failed(f"{command[0]}: command not found", _NOT_FOUND)
    except OSError as error:
        return _failed(f"{command[0]}: cannot be run: {error.strerror or error}", _NOT_EXECUTABLE)


def _on_hosts(words: Sequence[str], environment: Mapping[str, str], args: argparse.Namespace) -> int:
    from t5x_harness.pods.programs import run_on_hosts
    from t5x_harness.pods.start import PodRefused

    try:
        slice_ = _slice(args)
        if slice_ is None:
            return _failed("--hosts: name the slice whose hosts run the command, not none", USAGE)
        return run_on_hosts(words, environment, slice_)
    except PodRefused as refused:
        return _failed(f"--hosts: {refused}; {refused.fix}", USAGE)


def _slice(args: argparse.Namespace) -> Slice | None:
    """Returns the slice to emulate, or None for none.

    Raises:
      SliceError: there is no such slice, or it has another number of hosts.
    """
    if args.slice == "none":
        return None
    if not args.hosts:
        return get_slice(args.slice or DEFAULT_SLICE)
    fitting = slices_of_hosts(args.hosts)
    if args.slice is None:
        of_default = [each for each in fitting if each.generation is get_slice(DEFAULT_SLICE).generation]
        if not fitting:
            raise SliceError(f"--hosts={args.hosts}: no slice has {args.hosts} hosts")
        return (of_default or fitting)[0]
    slice_ = get_slice(args.slice)
    if slice_.hosts != args.hosts:
        near = f"; {', '.join(each.name for each in fitting[:3])} have {args.hosts}" if fitting else ""
        raise SliceError(
            f"--hosts={args.hosts}: {slice_.name} has {slice_.hosts} host{'s' * (slice_.hosts != 1)}{near}"
        )
    return slice_


def _of_guides(command: Sequence[str]) -> str | None:
    """Returns a message with the replacement for a command from T5X's guides that is missing here; otherwise None."""
    if (launched := xmanager.instead_of(command)) is not None:
        return launched
    program = os.path.basename(command[0])
    script = next((word for word in command[1:] if not word.startswith("-")), "")
    if not program.startswith("python") or command[1:2] == ["-m"] or os.path.exists(script):
        return None
    folder, name = os.path.split(script)
    if os.path.basename(folder) == "t5x" and name in _T5X_SCRIPTS:
        module = name.removesuffix(".py")
        return f"there is no file {script}; T5X is imported by its name here: {program} -m t5x.{module} …"
    return None


def _environment(args: argparse.Namespace) -> dict[str, str]:
    try:
        slice_ = _slice(args)
        project = project_of(args)
        named = [each.strip() for text in args.python_path for each in text.split(",") if each.strip()]
        folders = [*map(os.path.abspath, named), *find_project(Path.cwd()).python_path]
        choice = args.runtime or RuntimeChoice.AUTO
        runtime = find_runtime(choice, folders_of(".", folders))
        given = from_environment(RUNS, vars(args), os.environ)
        numerics = args.tpu_numerics or given.get("tpu_numerics")
        level = args.cpu_isa or given.get("cpu_isa")
    except (SliceError, RuntimeChoiceError, SettingsError) as error:
        raise _Refused(str(error), USAGE) from None
    path = os.pathsep.join(filter(None, [*folders, os.environ.get("PYTHONPATH")]))
    environment = program_environment(slice_, runtime, choice, {**os.environ, "PYTHONPATH": path})
    environment[TPU_NUMERICS_VARIABLE] = "1" if numerics else ""
    pin(level, environment)
    if args.google or args.google_root or args.create_buckets or options_of(args) != VertexOptions():
        environment = _with_google(args, project, environment)
    if project and not environment.get(ROOT_VARIABLE):
        raise _Refused(
            "--standins=missing: there are no buckets to put stand-ins in; add --google or --google-root DIR, or read "
            "the lines of t5x-harness serve into this shell",
            USAGE,
        )
    return {**environment, **program_setup.variables(project, shrink=args.shrink)}


def _with_google(args: argparse.Namespace, project: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Starts an emulated Google Cloud that ends with this process, which becomes the command.

    Returns:
      The environment with the variables that redirect clients to it.
    """
    from t5x_harness.google.environment import google_environment, with_programs
    from t5x_harness.google.server.launch import launch
    from t5x_harness.google.server.settings import ServerError, ServerSettings
    from t5x_harness.vertex.cloud import with_programs_of_t5x

    root = root_of(args.google_root, "--google-root")
    try:
        launched = launch(
            ServerSettings(
                root,
                owner=os.getpid(),
                create_buckets=args.create_buckets,
                vertex=with_programs_of_t5x(options_of(args, project, shrink=args.shrink)),
            )
        )
    except ServerError as error:
        raise _Refused(str(error), _NOT_HAD) from None
    launched.detach()
    return with_programs(launched.endpoints, {**environment, **google_environment(launched.endpoints)})


def _with_gcs(
    command: Sequence[str], environment: dict[str, str], paths: str | None
) -> tuple[list[str], dict[str, str]]:
    """Returns the words and variables with which the command sees the environment's buckets at ``/gcs``."""
    from t5x_harness.google.gcs_mount.mount import MountMode
    from t5x_harness.google.gcs_mount.namespace import NamespaceRefused
    from t5x_harness.google.gcs_mount.probing import launched, refusal

    root = environment.get(ROOT_VARIABLE)
    if paths == "off" or not root:
        if paths not in (None, "off"):
            raise _Refused(
                f"--gcs-paths={paths}: there are no buckets to show; add --google or --google-root DIR, or read the "
                "lines of t5x-harness serve into this shell",
                USAGE,
            )
        return list(command), {**environment, ROOT_VARIABLE: ""} if root else environment
    mode = MountMode(paths or environment.get(MODE_VARIABLE) or MountMode.FOLDER)
    try:
        words, seen = launched(command, {**environment, MODE_VARIABLE: mode.value}, root, mode)
    except NamespaceRefused as refused:
        raise _Refused(
            f"/gcs cannot be as Cloud Storage FUSE here: {refused}; see t5x-harness doctor", _NOT_HAD
        ) from None
    if PATCH_VARIABLE in seen:
        print(
            f"t5x-harness exec: /gcs cannot be mounted here ({refusal(MountMode.FOLDER)}): it is rewritten in the "
            "command's words and variables, and patched in Python; see t5x-harness doctor",
            file=sys.stderr,
        )
    return words, seen


def _failed(message: str, status: int) -> int:
    print(printable(f"t5x-harness exec: {message}"), file=sys.stderr)
    return status
