"""A pytest plugin and local emulation harness for people who train with T5X.

The names below are public, as :mod:`t5x_harness.vertex` is; docs/reference.md lists them. Each is imported
from its module when it is first used, so ``import t5x_harness`` is light.
"""

from typing import TYPE_CHECKING, Any

from t5x_harness.version import __version__ as __version__

if TYPE_CHECKING:
    from t5x_harness.aot.numbers import AotNumbers as AotNumbers
    from t5x_harness.conversion.request import Conversion as Conversion
    from t5x_harness.conversion.request import ConversionError as ConversionError
    from t5x_harness.conversion.request import convert as convert
    from t5x_harness.fixtures.determinism import AssertDeterministic as AssertDeterministic
    from t5x_harness.fixtures.runs import AuxiliaryJobs as AuxiliaryJobs
    from t5x_harness.fixtures.runs import T5XAot as T5XAot
    from t5x_harness.fixtures.runs import T5XRun as T5XRun
    from t5x_harness.fixtures.samples import FakeHuggingFaceDataset as FakeHuggingFaceDataset
    from t5x_harness.fixtures.samples import MakeTinyTask as MakeTinyTask
    from t5x_harness.fixtures.samples import SampleRows as SampleRows
    from t5x_harness.fixtures.samples import TinyTask as TinyTask
    from t5x_harness.fixtures.storage import FusePath as FusePath
    from t5x_harness.fixtures.storage_s3 import FakeS3 as FakeS3
    from t5x_harness.google.gcs import FakeGcs as FakeGcs
    from t5x_harness.google.gcs_mount.probing import launched as launched
    from t5x_harness.google.vertex.settings import VertexOptions as VertexOptions
    from t5x_harness.google.vertex_admin import EmulatorError as EmulatorError
    from t5x_harness.google.vertex_admin import FakeVertex as FakeVertex
    from t5x_harness.sample_tasks import CONFIGS as CONFIGS
    from t5x_harness.settings.auxiliary import Auxiliary as Auxiliary
    from t5x_harness.spec import Assignment as Assignment
    from t5x_harness.spec import AuxiliaryRun as AuxiliaryRun
    from t5x_harness.spec import BoundValue as BoundValue
    from t5x_harness.spec import Change as Change
    from t5x_harness.spec import Changed as Changed
    from t5x_harness.spec import Checkpoint as Checkpoint
    from t5x_harness.spec import Edit as Edit
    from t5x_harness.spec import FactTable as FactTable
    from t5x_harness.spec import Finding as Finding
    from t5x_harness.spec import GcsPaths as GcsPaths
    from t5x_harness.spec import Location as Location
    from t5x_harness.spec import Measure as Measure
    from t5x_harness.spec import Mode as Mode
    from t5x_harness.spec import Outcome as Outcome
    from t5x_harness.spec import Reason as Reason
    from t5x_harness.spec import RunResult as RunResult
    from t5x_harness.spec import RunSettings as RunSettings
    from t5x_harness.spec import RunSpec as RunSpec
    from t5x_harness.spec import RuntimeChoice as RuntimeChoice
    from t5x_harness.spec import Severity as Severity
    from t5x_harness.spec import Stage as Stage
    from t5x_harness.spec import StageResult as StageResult
    from t5x_harness.spec import StandInPolicy as StandInPolicy
    from t5x_harness.vertex.cloud import GoogleSession as GoogleSession
    from t5x_harness.vertex.target import VertexTarget as VertexTarget


def __getattr__(name: str) -> Any:
    from t5x_harness.system.lazy import public_name

    return public_name(__name__, __file__, name)


def __dir__() -> list[str]:
    return [*__getattr__("__all__"), "__version__"]
