"""The numbers of an aot stage by program, in the form that tests use: ``numbers.train.hbm_peak``."""

import dataclasses
from collections.abc import Mapping

from t5x_harness.aot.request import EVAL, PREDICT, SCORE, TRAIN
from t5x_harness.spec import Finding, StageResult


@dataclasses.dataclass(frozen=True)
class CollectiveNumbers:
    """Collectives of one kind over one axis of the mesh, in one run of a program.

    Attributes:
      kind: the kind, such as ``all-reduce`` or ``all-gather``.
      axis: the axis: ``data``, ``model`` or ``data+model``.
      bytes: the bytes of all of them on one device.
      count: the number of times that they run, counting each round of a loop.
    """

    kind: str
    axis: str
    bytes: int
    count: int


@dataclasses.dataclass(frozen=True)
class PaddingNumbers:
    """The cost of one size that is not a multiple of the tiles that memory is laid out in.

    Attributes:
      axis: the axis of this size: a logical axis of the model, or ``length of inputs``; ``-`` if it is not known.
      size: the size on a device.
      in_tiles: the size with padding.
      bytes: the bytes at the peak that hold nothing because of it.
    """

    axis: str
    size: int
    in_tiles: int
    bytes: int


class ProgramNumbers:
    """The resources that one program takes of one device of the slice.

    A number that the compiler does not provide raises an AttributeError with the reason: the program was only lowered,
    or needs too much memory to be compiled at all.

    Args:
      name: the program's name.
      measures: the measures of its stage.
    """

    def __init__(self, name: str, measures: Mapping[tuple[str, str], float]) -> None:
        self.name = name
        self._measures = measures

    @property
    def fits(self) -> bool:
        """Whether the program fits the memory of a device."""
        return bool(self._number("fits"))

    @property
    def hbm_peak(self) -> int:
        """The most bytes that its values take at any moment."""
        return int(self._number("hbm_peak"))

    @property
    def hbm_needed(self) -> int:
        """The bytes that have to fit: those that the compiler reserves, and the code if its size is known."""
        return int(self._number("hbm_needed"))

    @property
    def headroom(self) -> int:
        """The bytes that are left; negative if the program does not fit."""
        return int(self._number("hbm_headroom"))

    @property
    def flops(self) -> float:
        """The floating-point operations of one run on one device."""
        return self._number("flops_of_a_device")

    @property
    def step_seconds_at_least(self) -> float:
        """The least time that one run can take, in seconds."""
        return self._number("step_seconds_at_least")

    @property
    def kinds(self) -> dict[str, int]:
        """The bytes at the peak by kind: parameters, optimizer, gradients, temporaries and so on."""
        return {kind: int(size) for kind, size in self._parts("hbm_at_peak").items()}

    @property
    def padding(self) -> list[PaddingNumbers]:
        """The padding at the peak by size, for at least 0.5% of the peak; all padding is in ``kinds["padding"]``."""
        self._number("hbm_peak")
        found = []
        for part, lost in self._parts("hbm_padding").items():
            axis, size, in_tiles = part.rsplit("/", 2)
            found.append(PaddingNumbers(axis, int(size), int(in_tiles), int(lost)))
        return found

    @property
    def matrix_unit_padding(self) -> float:
        """The least share of the matrix units' work that is spent on padding, 0 to 1."""
        return self._number("matrix_unit_padding")

    @property
    def collectives(self) -> list[CollectiveNumbers]:
        """The data that devices exchange in one run, by kind and axis."""
        self._number("flops_of_a_device")
        counts = self._parts("collectives")
        found = []
        for part, size in self._parts("collective_bytes").items():
            kind, _, axis = part.partition("/")
            found.append(CollectiveNumbers(kind, axis, int(size), int(counts[part])))
        return found

    def _parts(self, name: str) -> dict[str, float]:
        """Returns the values of a measure that the program has for each of its parts."""
        begin = f"{self.name}/"
        return {
            of.removeprefix(begin): value
            for (n, of), value in self._measures.items()
            if n == name and of[: len(begin)] == begin
        }

    def _number(self, name: str) -> float:
        try:
            return self._measures[name, self.name]
        except KeyError:
            fits = self._measures.get(("fits", self.name))
            why = (
                "it was lowered, and not compiled"
                if fits is None
                else "it does not fit, and was not compiled to the end"
            )
            raise AttributeError(f"{self.name} has no {name}: {why}") from None


class AotNumbers:
    """The TPU compiler's verdict on a config on a slice: numbers of each program, and findings.

    Args:
      result: the result of the aot stage.

    Attributes:
      findings: the findings; a program that does not fit is AOT01.
      not_checked: the questions that were not judged, in words.
    """

    def __init__(self, result: StageResult) -> None:
        self.findings: tuple[Finding, ...] = result.findings
        self.not_checked = result.not_checked
        measures = {(measure.name, measure.of): measure.value for measure in result.measures}
        known = {of for _, of in measures} | {name for name, _ in result.facts}
        self._programs = {
            name: ProgramNumbers(name, measures) for name in (TRAIN, EVAL, PREDICT, SCORE) if name in known
        }

    @property
    def train(self) -> ProgramNumbers:
        """The train step."""
        return self._program(TRAIN)

    @property
    def train_eval(self) -> ProgramNumbers:
        """The evaluation step during training."""
        return self._program(EVAL)

    @property
    def predict(self) -> ProgramNumbers:
        """Prediction, with the configured decoder."""
        return self._program(PREDICT)

    @property
    def score(self) -> ProgramNumbers:
        """Scoring."""
        return self._program(SCORE)

    def _program(self, name: str) -> ProgramNumbers:
        if name not in self._programs:
            raise AttributeError(f"the config has no program {name}; it has {', '.join(self._programs) or 'none'}")
        return self._programs[name]
