"""The values that users give for a job: its machine and chip-hours, bindings, target, and secret variables."""

import re

import pytest

from t5x_harness.promotion.marker import TpuResources
from t5x_harness.system.secrets import MASK, masked
from t5x_harness.vertex.arguments import OverrideError, argument_of, normalized
from t5x_harness.vertex.machine import ChipHours, ChipHoursError, Machine, MachineError
from t5x_harness.vertex.target import VertexTarget, VertexTargetError, find_target


@pytest.mark.parametrize(
    ("text", "machine", "slice_name", "chips"),
    [
        ("v3-32", Machine("cloud-tpu", "TPU_V3", 32), "v3-32", 16),
        ("v2-8", Machine("cloud-tpu", "TPU_V2", 8), "v2-8", 4),
        ("TPU_V3:32", Machine("cloud-tpu", "TPU_V3", 32), "v3-32", 16),
        ("v5e-16", Machine("ct5lp-hightpu-4t", tpu_topology="4x4"), "v5e-16", 16),
        ("v5e-8", Machine("ct5lp-hightpu-8t", tpu_topology="2x4"), "v5e-8", 8),
        ("v6e:2x2", Machine("ct6e-standard-4t", tpu_topology="2x2"), "v6e-4", 4),
        (
            "machine-type=ct5lp-hightpu-4t,tpu-topology=2x4",
            Machine("ct5lp-hightpu-4t", tpu_topology="2x4"),
            "v5e-8",
            8,
        ),
    ],
)
def test_a_slice_or_its_parts_name_a_machine(text: str, machine: Machine, slice_name: str, chips: int) -> None:
    found = Machine.parse(text)
    assert found == machine
    assert found.is_tpu
    assert found.slice is not None
    assert found.slice.name == slice_name
    assert found.chips == found.slice.num_chips == chips


def test_a_machine_without_a_tpu_has_no_slice() -> None:
    found = Machine.parse("machine-type=n1-standard-8,accelerator-type=NVIDIA_TESLA_V100,accelerator-count=2")
    assert found == Machine("n1-standard-8", "NVIDIA_TESLA_V100", 2)
    assert (found.is_tpu, found.slice, found.chips) == (False, None, 0)


def test_the_message_has_what_the_api_wants() -> None:
    pytest.importorskip("google.cloud.aiplatform_v1")
    message = Machine.parse("v3-32").to_pb()
    assert message.machine_type == "cloud-tpu"
    assert message.accelerator_type.name == "TPU_V3"
    assert message.accelerator_count == 32
    assert Machine.parse("v5e-16").to_pb().tpu_topology == "4x4"


@pytest.mark.parametrize("text", ["v3-32", "v5e-16", "machine-type=n1-standard-8"])
def test_a_machine_is_read_back_from_its_message(text: str) -> None:
    pytest.importorskip("google.cloud.aiplatform_v1")
    machine = Machine.parse(text)
    assert Machine.of_pb(machine.to_pb()) == machine


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v3-7", "'v3-7' is not a TPU slice: nearest names: v3-8, v3-32, v3-64"),
        ("v4-8", "Vertex AI documents no machine for custom jobs on v4-8"),
        ("TPU_V3:many", "TPU_V3:many: 'many' is not a number of accelerators"),
        ("machine-type=x,type=y", "'type=y' is not a KEY=VALUE with one of the keys machine-type, accelerator-type"),
        ("tpu-topology=2x2", "tpu-topology=2x2: a machine needs a machine-type"),
    ],
)
def test_what_is_no_machine_is_refused(text: str, message: str) -> None:
    with pytest.raises(MachineError, match=re.escape(message)):
        Machine.parse(text)


def test_an_accelerator_that_the_api_does_not_have_is_refused_with_the_one_that_is_meant() -> None:
    pytest.importorskip("google.cloud.aiplatform_v1")
    with pytest.raises(MachineError) as caught:
        Machine("a2-ultragpu-1g", "A100_80GIB", 1).to_pb()
    assert str(caught.value) == "there is no accelerator type 'A100_80GIB': write NVIDIA_A100_80GB"


def test_chip_hours_are_chips_until_the_deadline() -> None:
    hours = ChipHours.of(Machine.parse("v3-32"), 4 * 3600)
    assert hours.total == 64
    assert str(hours) == "v3-32: 16 chips x at most 4 h = 64 chip-hours"
    hours.require(64)
    with pytest.raises(ChipHoursError) as caught:
        hours.require(16)
    assert str(caught.value) == (
        "v3-32: 16 chips x at most 4 h = 64 chip-hours: more than the 16 that "
        "--tpu-max-chip-hours (pytest: --t5x-tpu-max-chip-hours) allows. "
        "Give --tpu-max-chip-hours=64, a timeout of at most 1 h, or a smaller slice"
    )


def test_a_limit_that_is_given_as_told_is_enough() -> None:
    hours = ChipHours.of(Machine.parse("v3-8"), 12_345)
    with pytest.raises(ChipHoursError) as caught:
        hours.require(1)
    told = str(caught.value).split("--tpu-max-chip-hours=")[1].split(",")[0]
    hours.require(float(told))


def test_a_machine_without_a_tpu_uses_up_none() -> None:
    hours = ChipHours.of(Machine("n1-standard-8"), 7200)
    hours.require(0.1)
    assert str(hours) == "n1-standard-8, at most 2 h: no TPU, no chip-hours"


def test_chips_that_nobody_knows_are_not_taken_for_none() -> None:
    hours = ChipHours.of(Machine("ct5lp-hightpu-4t", tpu_topology="3x3"), 3600)
    with pytest.raises(ChipHoursError, match="chip-hours are not known"):
        hours.require(1000)


@pytest.mark.parametrize(
    ("given", "binding", "argument"),
    [
        ("X = 5", "X = 5", "--gin.X=5"),
        ("--gin.X=5", "X = 5", "--gin.X=5"),
        ("--gin.--gin.X=5", "X = 5", "--gin.X=5"),
        ("--gin_bindings=X = 5", "X = 5", "--gin.X=5"),
        ("  MODEL_DIR='gs://b/c=d' ", "MODEL_DIR = 'gs://b/c=d'", "--gin.MODEL_DIR='gs://b/c=d'"),
        ("a/b.C.d=@e/f.G()", "a/b.C.d = @e/f.G()", "--gin.a/b.C.d=@e/f.G()"),
        ("L={'inputs': 8, 'targets': 4}", "L = {'inputs': 8, 'targets': 4}", "--gin.L={'inputs': 8, 'targets': 4}"),
        ("import my.tasks", "import my.tasks", "--gin_bindings=import my.tasks"),
        ("utils.X:\n  a = 1", "utils.X:\n  a = 1", "--gin_bindings=utils.X:\n  a = 1"),
    ],
)
def test_bindings_may_have_the_form_of_the_command_line(given: str, binding: str, argument: str) -> None:
    assert normalized([given]) == (binding,)
    assert argument_of(binding) == argument


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("--gin.EVALUATOR_NUM_EXAMPLES=500,", "it ends in a comma"),
        ("MODEL_DIR=gs://b/c", "a string needs quotes of its own: MODEL_DIR = 'gs://b/c'"),
        ("X='a", "a quote (') is missing"),
        ('X=\\"a\\"', "the backslashes are for a shell, and stay out of a binding"),
        ("X", "Couldn't parse statement, expected ':' or '='"),
        ("", "this binds nothing; a binding has the form NAME = VALUE"),
    ],
)
def test_what_gin_cannot_read_is_refused_with_the_reason(given: str, reason: str) -> None:
    with pytest.raises(OverrideError) as caught:
        normalized(["Y = 1", given])
    assert str(caught.value).startswith(f"{given}: ")
    assert str(caught.value).endswith(reason)


WHOLE = {"project": "p", "location": "us-central1", "bucket": "my-bucket", "image": "i"}


def test_who_starts_the_job_comes_before_the_environment_and_that_before_the_project() -> None:
    environment = {"T5X_HARNESS_VERTEX_PROJECT": "of-env", "T5X_HARNESS_VERTEX_LOCATION": "europe-west4"}
    found = find_target({"project": "given", "image": None}, environment, {**WHOLE, "location": "us-east1"})
    assert found == VertexTarget("given", "europe-west4", "my-bucket", "i")


def test_a_wrong_value_is_refused_by_the_name_of_what_sets_it() -> None:
    with pytest.raises(VertexTargetError, match=r"^T5X_HARNESS_VERTEX_BUCKET 'gs://b' is not a bucket's name"):
        find_target({}, {"T5X_HARNESS_VERTEX_BUCKET": "gs://b"}, WHOLE)
    with pytest.raises(VertexTargetError, match=r"^location of \[tool.t5x_harness.vertex\] 'us' is not a region"):
        find_target({}, {}, {**WHOLE, "location": "us"})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("bucket", "gs://my-bucket", "give the name alone, as my-bucket of gs://my-bucket/folder"),
        ("bucket", "My Bucket", "is not a bucket's name"),
        ("experiment", "e" * 99, "is not a valid name: lowercase letters, digits and -, at most 98"),
        ("experiment", "My experiment", "is not a valid name: lowercase letters, digits and -, at most 98"),
        ("location", "us-central1-a", "give one such as us-central1, not a zone"),
    ],
)
def test_a_value_that_cannot_be_one_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(VertexTargetError, match=message):
        VertexTarget(**{**WHOLE, name: value})


@pytest.mark.parametrize(
    "name",
    "HF_TOKEN HUGGING_FACE_HUB_TOKEN WANDB_API_KEY AWS_SECRET_ACCESS_KEY DB_PASSWORD GHTOKEN apikey client-secret KEY "
    "PRIVATE_KEY_ID MY_AUTH GOOGLE_APPLICATION_CREDENTIALS TOKEN_1".split(),
)
def test_names_that_say_so(name: str) -> None:
    assert (masked(name, "x"), masked(name, "")) == (MASK, "")


def test_names_that_do_not_and_values_that_say_so_whatever_their_name() -> None:
    for name in "MAX_TOKENS TOKENIZERS_PARALLELISM TOKENIZER_PATH KEYBOARD MONKEY PYTHONPATH AUTHOR XLA_FLAGS".split():
        assert masked(name, "gs://bucket/x") == "gs://bucket/x"
    own = ("hf_" + "a1" * 17, "ghp_" + "a1" * 18, "sk-" + "a1" * 20)
    for value in (*own, "https://me:word@example.org/x", "-----BEGIN RSA PRIVATE KEY-----\nx"):
        assert masked("X", value) == MASK


def test_a_long_value_is_read_once() -> None:
    """Matching again from each character would practically never end."""
    assert masked("X", "x" * 2_000_000) == "x" * 2_000_000


def test_no_repr_shows_a_variable() -> None:
    """Pytest shows the repr if an assertion fails."""
    assert "word" not in repr(TpuResources(env={"HF_TOKEN": "word"}))
