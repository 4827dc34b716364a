"""The values that every room of the harness shares.

A :class:`RunSpec` says what to run, a :class:`Finding` is one thing that is wrong with it or worth knowing about it, a
:class:`StageResult` is the outcome of one stage, and a :class:`RunResult` is the outcome of the whole run. All are
frozen, hold only plain Python values, and survive a trip through JSON (``to_json``, ``from_json``), because stages run
in other processes.
"""

from t5x_harness.spec.choices import AotMode as AotMode
from t5x_harness.spec.choices import GcsPaths as GcsPaths
from t5x_harness.spec.choices import Hosts as Hosts
from t5x_harness.spec.choices import Mode as Mode
from t5x_harness.spec.choices import RuntimeChoice as RuntimeChoice
from t5x_harness.spec.choices import Stage as Stage
from t5x_harness.spec.choices import StandInPolicy as StandInPolicy
from t5x_harness.spec.fault import Ending as Ending
from t5x_harness.spec.fault import Fault as Fault
from t5x_harness.spec.fault import Moment as Moment
from t5x_harness.spec.results import NOTHING_IMPORTED as NOTHING_IMPORTED
from t5x_harness.spec.results import Assignment as Assignment
from t5x_harness.spec.results import AuxiliaryRun as AuxiliaryRun
from t5x_harness.spec.results import BoundValue as BoundValue
from t5x_harness.spec.results import Change as Change
from t5x_harness.spec.results import Changed as Changed
from t5x_harness.spec.results import Checkpoint as Checkpoint
from t5x_harness.spec.results import Edit as Edit
from t5x_harness.spec.results import FactTable as FactTable
from t5x_harness.spec.results import Finding as Finding
from t5x_harness.spec.results import Imports as Imports
from t5x_harness.spec.results import Location as Location
from t5x_harness.spec.results import Measure as Measure
from t5x_harness.spec.results import Outcome as Outcome
from t5x_harness.spec.results import Reason as Reason
from t5x_harness.spec.results import RunResult as RunResult
from t5x_harness.spec.results import Severity as Severity
from t5x_harness.spec.results import StageResult as StageResult
from t5x_harness.spec.run import DEFAULT_SLICE as DEFAULT_SLICE
from t5x_harness.spec.run import READ_SECONDS as READ_SECONDS
from t5x_harness.spec.run import STAGE_SECONDS as STAGE_SECONDS
from t5x_harness.spec.run import RunSettings as RunSettings
from t5x_harness.spec.run import RunSpec as RunSpec
