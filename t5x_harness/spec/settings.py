"""How to run: the settings of a run, whatever its config is."""

from __future__ import annotations

import dataclasses

from t5x_harness.spec.choices import AotMode, GcsPaths, Stage, StandInPolicy
from t5x_harness.system.decode import JsonValue

READ_SECONDS = 3
"""How long resolve reads each split of the data, by default."""

STAGE_SECONDS = 600.0
"""The time limit of one stage, unless another is set."""


@dataclasses.dataclass(frozen=True)
class RunSettings(JsonValue):
    """How to run a config.

    Attributes:
      tfds_data_dir: as T5X's ``--tfds_data_dir``.
      full_size: run the config at the sizes it names and on the slice's whole mesh, without shrinking.
      full_mesh: execute on the slice's whole mesh; else its data axis is cut to a few positions.
      tpu_numerics: round the operands of float32 matrix products in its steps as a TPU does by default; approximate.
      exact_numerics: compile its steps as T5X does, so that its numbers equal T5X's to the bit; else cheaply.
      model_dir: keep the run's output here instead of in the run's own folder.
      ignore: codes of findings that nobody wants to see.
      standins: what is generated: ``off`` (nothing), ``missing`` (what cannot be reached here) or ``all`` (everything
        in a bucket or on a hub).
      samples: the user's own rows in the place of data, each as the text of a
        :class:`~t5x_harness.standins.rows.Samples`.
      gcs: what ``/gcs`` is to the run, whose ``gs://`` is emulated: a ``folder``, or a mount as Cloud Storage ``fuse``
        makes it; ``off`` for no emulated Google Cloud.
      gcs_root: the user's folder with a folder for each bucket, which the emulated buckets begin with; None for none.
      plan_golden: the file that the run's plan is kept in and compared with; None to keep none.
      plan_golden_update: write that file anew, whatever it holds.
      read_seconds: how long resolve reads each split, to find examples that cannot be preprocessed.
      strict: warnings are errors.
      until: the last stage to run; None for all.
      aot: how the full-size programs are compiled for the slice, before anything is executed; None for not at all.
      prices: the user's own, in US dollars for an hour of one chip, by TPU generation.
    """

    tfds_data_dir: str | None = None
    full_size: bool = False
    full_mesh: bool = False
    tpu_numerics: bool = False
    exact_numerics: bool = False
    model_dir: str | None = None
    ignore: tuple[str, ...] = ()
    standins: StandInPolicy = StandInPolicy.MISSING
    samples: tuple[str, ...] = ()
    gcs: GcsPaths = GcsPaths.FOLDER
    gcs_root: str | None = None
    plan_golden: str | None = None
    plan_golden_update: bool = False
    read_seconds: int = READ_SECONDS
    strict: bool = False
    until: Stage | None = None
    aot: AotMode | None = None
    prices: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        for field, kind in (("gcs", GcsPaths), ("standins", StandInPolicy)):
            object.__setattr__(self, field, kind(getattr(self, field)))  # a plain string is taken, too
        if self.aot is not None:
            object.__setattr__(self, "aot", AotMode(self.aot))
