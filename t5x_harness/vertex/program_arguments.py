"""What a program of T5X is given on its command line, as far as that decides which steps it compiles."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Sequence
from typing import Self

from t5x_harness.spec import Mode

_MODES = {"t5x.train": Mode.TRAIN, "t5x.eval": Mode.EVAL, "t5x.infer": Mode.INFER}
_MAIN = "t5x.main"
_ONE_DASH = re.compile(r"^-(?=[A-Za-z])")


class NotARun(ValueError):
    """Such a program compiles no step; the message says why."""


@dataclasses.dataclass(frozen=True)
class ProgramArguments:
    """A run of T5X, as a command line has it.

    Attributes:
      bindings: statements, as ``--gin_bindings`` has them.
      search_paths: as ``--gin_search_paths`` has them.
    """

    mode: Mode
    gin_files: tuple[str, ...]
    bindings: tuple[str, ...]
    search_paths: tuple[str, ...]
    tfds_data_dir: str | None

    @classmethod
    def parse(cls, module: str, arguments: Sequence[str]) -> Self:
        """Reads the arguments of a module of T5X; flags that decide nothing here are passed over.

        Raises:
          NotARun: it trains, evaluates or infers nothing.
        """
        parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
        for flag in ("gin_file", "gin_bindings"):
            parser.add_argument(f"--{flag}", action="append", default=[])
        for flag in ("gin_search_paths", "tfds_data_dir", "run_mode"):
            parser.add_argument(f"--{flag}")
        parser.add_argument("--dry_run", nargs="?", const="true", default="false")
        try:
            given, _ = parser.parse_known_args([_binding(_ONE_DASH.sub("--", word, count=1)) for word in arguments])
        except argparse.ArgumentError as error:
            raise NotARun(f"its arguments cannot be read: {error}") from None
        mode = _MODES.get(module) if module != _MAIN else next((m for m in Mode if m == given.run_mode), None)
        if mode is None:
            named = module if module != _MAIN else f"{module} --run_mode={given.run_mode}"
            raise NotARun(f"{named} neither trains nor evaluates nor infers")
        if given.dry_run.lower() not in ("false", "f", "no", "n", "0"):
            raise NotARun("--dry_run reads the config and runs nothing")
        if not given.gin_file:
            raise NotARun("it has no --gin_file")
        folders = tuple(filter(None, (given.gin_search_paths or "").split(",")))
        return cls(mode, tuple(given.gin_file), tuple(given.gin_bindings), folders, given.tfds_data_dir)


def _binding(word: str) -> str:
    """Returns ``--gin.NAME=VALUE`` as the statement that it is; any other word as it is."""
    name, equals, value = word.removeprefix("--gin.").partition("=")
    return f"--gin_bindings={name} = {value}" if word.startswith("--gin.") and equals else word
