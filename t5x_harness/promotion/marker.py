"""The markers, their meaning in ``-m EXPRESSION``, and the resources that the marker ``tpu`` names."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t5x_harness.system.field_types import LARGEST, fault_in

if TYPE_CHECKING:
    from t5x_harness.vertex.container import JobOptions

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FORM = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")


def seconds_of(value: str | float) -> float:
    """Parses a duration into seconds.

    Raises:
      ValueError: the text is not a duration above zero; the message shows the valid form.
    """
    match = _FORM.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is not None:
        seconds = float(match[1]) * _UNITS[match[2]]
    else:
        seconds = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
    if not 0 < seconds <= LARGEST:
        most = f" and at most {LARGEST} seconds" if seconds > LARGEST else ""
        raise ValueError(f"give a time above zero{most}, as 90s, 30m, 2h or a number of seconds; not {value!r}")
    return seconds


class ResourcesError(ValueError):
    """An argument does not exist or has an invalid value; the message is one sentence."""


@dataclasses.dataclass(frozen=True)
class TpuResources:
    """The machine, limits and options of a test's job.

    Attributes:
      accelerator_type: the type of the TPU, as Vertex AI spells it: ``TPU_V2``, ``TPU_V3``, ``TPU_V4_POD``,
        ``TPU_V5_LITEPOD``.
      accelerator_count: the number of its cores; not with ``tpu_topology``.
      machine_type: ``cloud-tpu``, or the host machine of newer TPUs, such as ``ct5lp-hightpu-4t``.
      tpu_topology: the slice's chips, such as ``2x4``, for newer TPUs.
      region: the region where the job runs; overrides the target's location.
      image_uri: the container image; overrides the target's image.
      steps: the train steps of the job, counted from the checkpoint that training starts from; overrides the steps of
        the config, and of smoke if the config is shrunk.
      timeout: the limit of the job's run time: seconds, or text such as ``30m`` or ``2h``.
      full_size: whether to run at the config's own sizes (True) or shrunk like smoke (False); None for shrunk on the
        emulated Vertex AI and full size on the real one.
      ship: whether to run the test itself in the job, instead of the config that it gives to ``t5x_run``; not with
        ``steps`` or ``full_size``, as the test's own code decides its sizes.
      files: globs, relative to pytest's root folder, of files that a shipped test needs in addition to its package.
      strategy: how machines are found: ``SPOT`` or ``FLEX_START``; see
        :class:`~t5x_harness.vertex.container.JobOptions` for this and the following.
      max_wait_duration: the limit of the wait with ``FLEX_START``: seconds, or text such as ``2h``.
      reservation: ``any``, ``none`` or a reservation's name.
      env: environment variables of the job's container.
      labels: labels of the job.
      service_account: the account that the job acts as; overrides the target's account.
      network: the network that the job is peered with.
      boot_disk_type: the type of the machine's boot disk.
      boot_disk_size_gb: the size of the machine's boot disk in GB.
      restart_job_on_worker_restart: whether losing one worker restarts the whole job.
      disable_retries: whether the service never retries the job.

    Raises:
      ResourcesError: a value has the wrong type or is out of range.
    """

    accelerator_type: str | None = None
    accelerator_count: int | None = None
    machine_type: str | None = None
    tpu_topology: str | None = None
    region: str | None = None
    image_uri: str | None = None
    steps: int | None = None
    timeout: float | str | None = None
    full_size: bool | None = None
    ship: bool = False
    files: tuple[str, ...] = ()
    strategy: str | None = None
    max_wait_duration: float | str | None = None
    reservation: str | None = None
    env: Mapping[str, str] | None = dataclasses.field(default=None, repr=False)
    labels: Mapping[str, str] | None = None
    service_account: str | None = None
    network: str | None = None
    boot_disk_type: str | None = None
    boot_disk_size_gb: int | None = None
    restart_job_on_worker_restart: bool | None = None
    disable_retries: bool | None = None

    def __post_init__(self) -> None:
        if fault := fault_in(self):
            raise ResourcesError(fault)
        object.__setattr__(self, "files", tuple(self.files))
        if self.accelerator_count is not None and self.tpu_topology is not None:
            raise ResourcesError(
                f"accelerator_count={self.accelerator_count} and tpu_topology={self.tpu_topology!r} both say how many "
                "chips: cloud-tpu machines take the first, newer ones (ct5lp-…) the second"
            )
        if self.max_wait_duration is None or self.strategy is not None:
            _ = self.options
        for name in _SIZES:
            if self.ship and getattr(self, name) is not None:
                raise ResourcesError(
                    f"{name}={getattr(self, name)!r} is for the config of a test that calls t5x_run; one with "
                    "ship=True runs in the job as it is written, so its sizes are in its own code"
                )
        for name in ("timeout", "max_wait_duration"):
            if getattr(self, name) is not None:
                try:
                    seconds_of(getattr(self, name))
                except (TypeError, ValueError) as error:
                    raise ResourcesError(f"{name}: {error}") from None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> TpuResources:
        """Makes resources from named values.

        Raises:
          ResourcesError: a name does not exist; the message suggests the nearest one.
        """
        for name in values:
            if name not in FIELDS:
                import difflib

                near = difflib.get_close_matches(name, FIELDS, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(FIELDS)}"
                raise ResourcesError(f"no argument {name!r}: {hint}")
        return cls(**values)

    @classmethod
    def of_marks(
        cls, marks: Iterable[tuple[Sequence[Any], Mapping[str, Any]]], otherwise: Mapping[str, Any]
    ) -> TpuResources:
        """Makes resources from a test's markers; its own marker overrides those of its class and module.

        Args:
          marks: the positional and the named arguments of each marker, the closest first.
          otherwise: the values for names that no marker has, such as those in the project's table.

        Raises:
          ResourcesError: a marker has an argument that does not exist or has an invalid value.
        """
        layers = []
        for args, values in marks:
            if args:
                given = ", ".join(map(repr, args))
                raise ResourcesError(f"arguments are given by name, as accelerator_type='TPU_V3'; not {given}")
            cls.of(values)
            layers.append(values)
        return cls.of(merged([*layers, otherwise]))

    def for_auxiliary(self, *, own_slice: bool) -> TpuResources:
        """Returns the resources of an auxiliary job, which has the sizes of the train job, but its own steps.

        Args:
          own_slice: whether it also has its own machine.
        """
        machine: dict[str, Any] = dict.fromkeys(_MACHINE) if own_slice else {}
        return dataclasses.replace(self, steps=None, full_size=True, **machine)

    @property
    def seconds(self) -> float | None:
        """The limit of the job's run time in seconds; None if the resources set none."""
        return seconds_of(self.timeout) if self.timeout is not None else None

    @property
    def options(self) -> JobOptions:
        """The options of the job's spec other than its machine, container and timeout.

        Raises:
          ResourcesError: options contradict each other.
        """
        from t5x_harness.vertex.container import JobOptions, JobOptionsError

        longest = self.max_wait_duration
        seconds = max(1, int(seconds_of(longest))) if longest is not None else None
        try:
            return JobOptions.of({**vars(self), "max_wait_duration": seconds})
        except JobOptionsError as error:
            raise ResourcesError(str(error)) from None

    @property
    def names_machine(self) -> bool:
        """Whether any field names a machine."""
        return any((self.accelerator_type, self.machine_type, self.tpu_topology))


FIELDS = tuple(field.name for field in dataclasses.fields(TpuResources))

SIGNATURE = ", ".join(f"{field.name}={field.default!r}" for field in dataclasses.fields(TpuResources))
"""The signature that the marker's documentation shows."""

_KIND = frozenset({"accelerator_type", "machine_type", "tpu_topology"})
_COUNTS = frozenset({"accelerator_count", "tpu_topology"})
_MACHINE = _KIND | _COUNTS
_SIZES = ("steps", "full_size")


def merged(layers: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Merges named values from several places; earlier places override later ones.

    The fields of a machine belong together: a place that names the kind of machine takes nothing from the machines of
    later places, and a place that only names a count takes their kind. A place that ships its test takes no sizes from
    later places, as these sizes are for configs. The variables and labels of all places are combined.
    """
    found: dict[str, Any] = {}
    for layer in layers:
        decided = _MACHINE if _KIND & found.keys() else _COUNTS if "accelerator_count" in found else frozenset()
        decided = decided.union(_SIZES if found.get("ship") else ())
        for name, value in layer.items():
            if name in found and isinstance(value, Mapping) and isinstance(found[name], Mapping):
                found[name] = {**value, **found[name]}
            elif name not in found and name not in decided:
                found[name] = value
    return found


def resources_in(lines: Iterable[str]) -> Mapping[str, Any]:
    """Parses lines such as ``accelerator_count = 8``; whole numbers and booleans become Python values.

    Raises:
      ResourcesError: a line has another form, or a value is invalid.
    """
    values: dict[str, Any] = {}
    for line in lines:
        name, equals, text = (part.strip() for part in line.partition("="))
        if not equals:
            raise ResourcesError(f"t5x_tpu: {line!r} is not a NAME = VALUE, such as accelerator_type = TPU_V3")
        words = {"true": True, "false": False}
        values[name] = int(text) if text.isascii() and text.isdigit() else words.get(text.lower(), text)
    try:
        TpuResources.of(values)
    except ResourcesError as error:
        raise ResourcesError(f"t5x_tpu: {error}") from None
    return values


SMOKE, AOT, TPU = "smoke", "aot", "tpu"

MARKERS = (
    "smoke: runs T5X here, on CPU devices laid out like a TPU slice; fails if it exercised nothing",
    f"{AOT}: compiles a config's programs at full size with the TPU's own compiler, for the slice; an item of each "
    "config under -m aot, or where --t5x-aot names a mode",
    "slice(name='v3-8', hosts='one'): the TPU slice, by name or topology such as v3:4x4, that t5x_run emulates in this "
    "test; with hosts='emulated', each of its hosts is a process",
    "preempt(at_step=None, during='step', how='kill', grace=30, host=None, on=None): the training that t5x_run makes "
    "in this test is also ended at this moment (step, save, commit, eval, restore, compile) in this way (kill, term, "
    "stop, gil), on one host of a pod or on all, restarted, there or elsewhere, and compared with one that ran through",
    "network(): lets this test and its runs reach beyond this machine; smoke tests and runs without it reach loopback "
    "only, unless --t5x-network=allow",
    f"{TPU}({SIGNATURE}): under -m tpu, and any other -m that selects it because of this mark alone, the test is "
    "promoted to a job on Vertex AI with these resources; it means nothing else",
)
"""The markers in the form in which pytest lists them."""

_Atom = tuple[str, tuple[tuple[str, object], ...]]
_Evaluate = Callable[[Callable[..., bool]], bool]
"""Takes a function that returns whether a mark exists, by its name and keyword arguments."""


class _Undecided(Exception):
    """The expression depends on a mark about which nothing has been assumed yet."""

    def __init__(self, atom: _Atom) -> None:
        super().__init__(atom)
        self.atom = atom


def selects_only(expression: str, mark: str) -> bool:
    """Returns whether an expression selects an item because of ``mark``: true with only that mark, false without it."""
    evaluate = _compiled(expression, mark)
    return bool(evaluate(lambda name, **_: name == mark)) and not evaluate(lambda name, **_: False)


def selects(expression: str, mark: str) -> bool:
    """Returns whether an expression selects an item with only the mark ``mark``; an empty expression selects all."""
    return not expression or bool(_compiled(expression)(lambda name, **_: name == mark))


def promotes(expression: str) -> bool:
    """Returns whether an expression can be true of a test marked ``tpu`` and of no test without that mark.

    So ``tpu`` and ``tpu and not slow`` promote. ``smoke or tpu`` does not, as it also selects tests that are not meant
    for a TPU, and neither does ``not tpu``.
    """
    evaluate = _compiled(expression, TPU)
    return _can_hold(evaluate, {}, tpu=True) and not _can_hold(evaluate, {}, tpu=False)


@functools.lru_cache(maxsize=64)  # asked for each file
def _compiled(expression: str, mark: str = "") -> _Evaluate:
    """Compiles an expression; if it is invalid or does not name the mark, the result is never true."""
    if mark not in expression:
        return lambda is_there: False
    from t5x_harness.upstream.pytest import compiled_expression

    compiled = compiled_expression(expression)
    return compiled.evaluate if compiled is not None else lambda is_there: False


def _can_hold(evaluate: _Evaluate, known: dict[_Atom, bool], *, tpu: bool) -> bool:
    """Returns whether some set of marks makes the expression true, with or without ``tpu``, given ``known`` marks."""

    def is_there(name: str, /, **arguments: object) -> bool:
        atom = (name, tuple(sorted(arguments.items())))
        if name == TPU and not tpu:
            return False
        if atom == (TPU, ()):
            return True
        if atom not in known:
            raise _Undecided(atom)
        return known[atom]

    try:
        return bool(evaluate(is_there))
    except _Undecided as undecided:
        return any(_can_hold(evaluate, {**known, undecided.atom: value}, tpu=tpu) for value in (True, False))
