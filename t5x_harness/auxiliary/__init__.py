"""Auxiliary jobs: an evaluation or fine-tuning of each checkpoint of a train job, started as checkpoints are written.

For a notebook or a script::

    from t5x_harness import RunSpec
    from t5x_harness.auxiliary import AuxiliaryRequest, LocalJobs, prepare, watch

    request = AuxiliaryRequest(RunSpec(("train.gin",)), ("my_task",), ("eval.gin",), replace_gin_file=True)
    prepared = prepare(request)
    print(prepared.findings)
    print(watch(prepared, LocalJobs(request, prepared.job_folder), say=print).text())
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t5x_harness.auxiliary.jobs import AuxiliaryError as AuxiliaryError
    from t5x_harness.auxiliary.jobs import AuxiliaryRequest as AuxiliaryRequest
    from t5x_harness.auxiliary.journal import Record as Record
    from t5x_harness.auxiliary.journal import State as State
    from t5x_harness.auxiliary.journal import Status as Status
    from t5x_harness.auxiliary.processes import LocalJobs as LocalJobs
    from t5x_harness.auxiliary.vertex_jobs import VertexJobs as VertexJobs
    from t5x_harness.auxiliary.watching import Prepared as Prepared
    from t5x_harness.auxiliary.watching import prepare as prepare
    from t5x_harness.auxiliary.watching import status_of as status_of
    from t5x_harness.auxiliary.watching import watch as watch


def __getattr__(name: str) -> Any:
    from t5x_harness.system.lazy import public_name

    return public_name(__name__, __file__, name)


def __dir__() -> list[str]:
    return [*__getattr__("__all__")]
