"""What values parameters may have: the language of the tables, the tables, and what lint says of values outside."""

import math
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from linting import RUN, T5X, Folder

from t5x_harness.gin.files import ModuleFinder
from t5x_harness.gin.snapshot import Snapshot
from t5x_harness.gin.values import Macro, Reference
from t5x_harness.lint.domains import parameters_of
from t5x_harness.lint.domains.annotations import annotated
from t5x_harness.lint.domains.language import UNKNOWN, parse

_OWN = """\
import dataclasses
from typing import Literal, Sequence

def scale(x, factor: float = 1.0, steps: int = 10, how: Literal['sum', 'mean'] = 'sum'):
  return x

@dataclasses.dataclass
class Layer:
  sizes: Sequence[int] = (1, 2)
"""
_OBJECT = Reference("", "pkg.thing", called=False)


@pytest.mark.parametrize(
    ("domain", "inside", "outside"),
    [
        ("int >= 1 | None", [1, 10**30, True, None], [0, -1, 1.0, "1", [1], _OBJECT]),
        ("float in [0, 1)", [0, 0.0, 0.99], [1, 1.0, -1e-9, math.nan, math.inf, None, "0.5"]),
        ("float in (0, 1]", [1e-30, 1, True], [0, 1.1]),
        ("float < 3 | 'auto'", [2, "auto", -math.pi], [3, "Auto", -math.inf]),
        ("bool", [True, False, 0, 1], [2, None, "True", 0.5]),
        ("str", ["", "x"], [1, None, _OBJECT, b"x"]),
        ("path", ["gs://b/o", _OBJECT], [1, None]),
        ("regex | None", ["a+", None], ["a(", 1]),
        ("dtype", ["bfloat16", "int8", "float8_e4m3fn", "<f4", _OBJECT], ["bfloat15", "flaot32", 32]),
        ("[str | int <= 3]", [[], ["a", 3], ("b",)], ["a", None, [4], [None]]),
        ("(int, [float])", [(1, [2.0]), [1, ()]], [(1,), (1, 2), (1.5, []), {}]),
        ("{'a' | 'b': int | [int]}", [{}, {"a": 1, "b": [2]}], [{"c": 1}, {"a": "1"}, [], {"a": [None]}]),
        ("@ | @function | @seqio.Feature", [_OBJECT], [1, "pkg.thing", None]),
        ("any", [None, 1, "x", _OBJECT, math.nan], []),
    ],
)
def test_the_language(domain: str, inside: list[Any], outside: list[Any]) -> None:
    def fits(value: Any) -> bool:
        return parse(domain).misfit(value, lambda name: UNKNOWN) is None

    assert [value for value in inside if not fits(value)] == []
    assert [value for value in outside if fits(value)] == []
    assert fits(Macro("UNBOUND"))
    assert fits(Reference("", "pkg.value", called=True))


def test_a_bound_may_be_another_parameter() -> None:
    domain = parse("int in [0, count)")
    assert domain.misfit(2, {"count": 3}.get) is None
    assert domain.misfit(3, {}.get) is None
    misfit = domain.misfit(3, {"count": 3}.get)
    assert misfit is not None
    assert str(misfit.domain) == "a whole number from 0 up to, but not including, count"


def test_none_may_depend_on_another_parameter() -> None:
    domain = parse("@function | None without other")
    assert domain.misfit(None, lambda name: UNKNOWN) is None
    assert domain.misfit(None, {"other": None}.get) is None
    misfit = domain.misfit(None, {"other": _OBJECT}.get)
    assert misfit is not None
    assert str(misfit.domain) == "a function by reference (@…) or None without other"


@pytest.mark.parametrize("text", ["", "int >=", "integer", "[int", "(int", "{str}", "int | ", "str str", "int ~ 3"])
def test_what_is_not_in_the_language(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a domain|is expected|ends too early|is not expected|mean nothing"):
        parse(text)


def test_every_entry_is_of_a_parameter_that_there_is(tmp_path: Path) -> None:
    snapshot = Snapshot(T5X, ModuleFinder((str(tmp_path),), T5X))
    unknown, count = [], 0
    for file in resources.files("t5x_harness.lint.domains").iterdir():
        table = tomllib.loads(file.read_text(encoding="utf-8")) if file.name.endswith(".toml") else {}
        for target, entries in table.items():
            known = snapshot.find(target)
            names = parameters_of(target)
            count += len(names)
            assert len(names) == len(entries), target
            if known is None or (known.parameters is not None and not known.takes_any):
                unknown += [f"{target}.{name}" for name in names if known is None or name not in known.parameters]
    assert unknown == []
    assert count > 1400


@pytest.mark.parametrize(
    ("line", "place", "said"),
    [
        ("train_script.train.random_seed = [1]", "GIN37 error 10", "train_script.train.random_seed cannot be [1]"),
        ("utils.RestoreCheckpointConfig.mode = 'lates'", "GIN37 error 10", "did you mean 'latest'?"),
        ("utils.SaveCheckpointConfig.keep = 0", "GIN36 error 10", "give a whole number from 1 up or None"),
        ("utils.SaveCheckpointConfig.checkpoint_steps = [10, 'x']", "GIN37 error 10", "checkpoint_steps[1] cannot be"),
        ("BATCH_SIZE = 0", "GIN36 error 10", "BATCH_SIZE = 0 is out of range (read by"),
        ("TASK_FEATURE_LENGTHS = {'inputs': -8, 'targets': 8}", "GIN36 error 10", "['inputs'] = -8 is out of range"),
        ("train_script.train.model = 'model'", "GIN37 error 10", "T5X calls the model's methods, and dies"),
        (
            "train_script.train.infer_eval_dataset_cfg = @utils.DatasetConfig()\n"
            "train_script.train.inference_evaluator_cls = None",
            "GIN37 error 11",
            "give a function by reference (@…) or None without infer_eval_dataset_cfg",
        ),
        (
            "from t5x.examples.t5 import network\nnetwork.T5Config.num_decoder_layers = 1_000_000_000",
            "GIN36 error 11",
            "give a whole number from 0 up to 10000",
        ),
        ("train_script.train.actions = {'TRIAN': []}", "GIN37 error 10", "did you mean 'TRAIN'?"),
    ],
)
def test_values_outside(folder: Folder, line: str, place: str, said: str) -> None:
    assert said in "; ".join(map(str, folder.said(f"{RUN}{line}\n", place)))


@pytest.mark.parametrize(
    "line",
    [
        "partitioning.standard_logical_axis_rules.parameter_partitioning_dims = 2.0",
        "partitioning.PjitPartitioner.logical_axis_rules = [('batch', 'data'), ('stack', ''), ('embed', ())]",
        "partitioning.PjitPartitioner.dcn_mesh_shape = (1, 1)",
    ],
)
def test_unusual_values_that_t5x_uses(folder: Folder, line: str) -> None:
    findings = folder.findings(f"{RUN}from t5x import partitioning\n{line}\n")
    assert not [finding for finding in findings if finding.code in ("GIN36", "GIN37")]


def test_what_the_factors_of_a_schedule_do_not_read_is_a_note(folder: Folder) -> None:
    schedule = "utils.create_learning_rate_scheduler"
    assert folder.said(f"{RUN}{schedule}.decay_factor = 0.3\n", "GIN38 note 10") == (
        f"{schedule}.decay_factor = 0.3 has no effect: factors is 'constant * rsqrt_decay', and without linear_decay "
        "or decay_every nothing reads it",
        "add one of them to factors, or remove it",
    )
    used = f"{RUN}{schedule}.factors = 'constant * decay_every'\n{schedule}.decay_factor = 0.3\n"
    assert "GIN38" not in {finding.code for finding in folder.findings(used)}


@pytest.mark.parametrize(
    ("annotation", "domain"),
    [
        ("int", "a whole number or None"),
        ("Optional[float]", "a number or None"),
        ("typing.Sequence[str] | None", "a list or tuple or None"),
        ("'bool'", "True or False or None"),
        ("Literal['sum', 'mean']", "'sum', 'mean' or None"),
        ("Mapping[str, int]", "a dict or None"),
        ("Callable[[int], int]", "an object by reference (@…) or None"),
        ("Union[int, jnp.ndarray]", None),
        ("jnp.dtype", None),
        ("list[", None),
    ],
)
def test_what_annotations_allow(annotation: str, domain: str | None) -> None:
    found = annotated(annotation)
    assert (str(found) if found is not None else None) == domain


@pytest.mark.parametrize(
    ("line", "place", "said"),
    [
        ("own.scale.factor = 'x'", "GIN37 warning 11", "own.scale.factor cannot be 'x': it is annotated as float"),
        (
            "own.scale.steps = 1e3",
            "GIN09 warning 11",
            "own.scale.steps = 1000.0 is a float, and a whole number is needed",
        ),
        ("own.scale.how = 'maen'", "GIN37 warning 11", "did you mean 'mean'?"),
        ("own.Layer.sizes = (1, 'b')", "GIN37 warning 11", "own.Layer.sizes[1] cannot be 'b'"),
    ],
)
def test_own_parameters_by_their_annotations(folder: Folder, line: str, place: str, said: str) -> None:
    folder.write({"own.py": _OWN})
    gin = f"{RUN}import own\n{line}\n"
    assert said in "; ".join(map(str, folder.said(gin, place, python_path=(str(folder.path),))))


@pytest.mark.parametrize("line", ["own.scale.factor = 2", "own.scale.steps = None", "own.Layer.sizes = []"])
def test_own_parameters_that_fit(folder: Folder, line: str) -> None:
    folder.write({"own.py": _OWN})
    found = folder.findings(f"{RUN}import own\n{line}\n", python_path=(str(folder.path),))
    assert {"GIN36", "GIN37", "GIN08", "GIN09"}.isdisjoint(finding.code for finding in found)
