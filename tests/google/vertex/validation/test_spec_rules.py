"""Jobs that the service accepts cause no message, each single fault causes its violation, and messages name the fix."""

import functools
from typing import Any

import job_documents
import job_faults
import pytest
from google.cloud.aiplatform_v1.types import CustomJob, Tensorboard
from google.cloud.aiplatform_v1beta1.types import CustomJob as BetaCustomJob
from hypothesis import given, settings
from hypothesis import strategies as st

from t5x_harness.google.vertex.validation import judging
from t5x_harness.google.vertex.validation.judging import service_rules
from t5x_harness.google.vertex.wire.errors import ApiError
from t5x_harness.vertex.job_rules import job_rules

judge = functools.partial(judging.judge, more=job_rules())

RULES = {rule.name: rule for rule in (*service_rules(), *job_rules())}
ALL_FAULTS = (*job_faults.FAULTS, *job_faults.TUNING_FAULTS)


def assert_only(fault: Any, job: Any) -> None:
    spoilt = fault.apply(job)
    verdict = judge(spoilt.message, spoilt.location)
    refused, warned = verdict.violations, verdict.warnings
    found = [(violation.rule, violation.field) for violation in (*refused, *warned)]
    assert found == [(fault.rule, fault.place(job))], "\n".join(map(str, (*refused, *warned)))
    assert bool(refused) == RULES[fault.rule].refuses
    (violation,) = (*refused, *warned)
    assert violation.code == RULES[fault.rule].code
    assert violation.source == str(RULES[fault.rule].source)
    assert "{" not in violation.message


@given(job_documents.custom_jobs() | job_documents.tuning_jobs())
@settings(max_examples=150)
def test_a_valid_job_is_taken_without_a_word(job: Any) -> None:
    verdict = judge(job.message, job.location)
    assert (verdict.violations, verdict.warnings) == ((), ())


@pytest.mark.parametrize("fault", ALL_FAULTS, ids=lambda fault: f"{fault.rule}-{fault.field}")
def test_each_fault_gives_exactly_its_violation(fault: Any) -> None:
    examples = job_documents.EXAMPLES if fault in job_faults.FAULTS else [job_documents.TUNING_EXAMPLE]
    jobs = [job for job in examples if fault.fits(job)]
    assert jobs, "no example can have this fault"
    for job in jobs:
        assert_only(fault, job)


@given(job_documents.custom_jobs() | job_documents.tuning_jobs(), st.data())
@settings(max_examples=250)
def test_a_fault_in_any_job_gives_exactly_its_violation(job: Any, data: st.DataObject) -> None:
    faults = job_faults.TUNING_FAULTS if job.tunes else job_faults.FAULTS
    assert_only(data.draw(st.sampled_from([fault for fault in faults if fault.fits(job)])), job)


def test_every_rule_has_a_fault_that_breaks_it() -> None:
    # A job with a TPU and a TensorBoard breaks two rules at once, as the warnings about it show.
    assert set(RULES) - {fault.rule for fault in ALL_FAULTS} == {"tensorboard-tpu"}


MACHINE = "job_spec.worker_pool_specs[0].machine_spec"


def job(machine: dict[str, Any], replicas: int = 1, **spec: Any) -> CustomJob:
    pool = {"machine_spec": machine, "replica_count": replicas, "container_spec": {"image_uri": "gcr.io/p/t5x:1"}}
    return CustomJob({"display_name": "t5x", "job_spec": {"worker_pool_specs": [pool], **spec}})


def with_container(**fields: Any) -> CustomJob:
    made = job({"machine_type": "n1-standard-4"})
    for name, value in fields.items():
        setattr(made.job_spec.worker_pool_specs[0].container_spec, name, value)
    return made


def labelled(**labels: str) -> CustomJob:
    made = job({"machine_type": "n1-standard-4"})
    made.labels = labels
    return made


def cloud_tpu(accelerator: str = "TPU_V3", count: int = 8, **more: Any) -> dict[str, Any]:
    return {"machine_type": "cloud-tpu", "accelerator_type": accelerator, "accelerator_count": count, **more}


REFUSED = {
    "chips for cores": (
        cloud_tpu(count=4),
        f"{MACHINE}.accelerator_count: TPU_V3 needs 8, 32, 64, … cores; 4 given: a v3-8 has 4 chips but 8 cores, "
        "so write 8. [VTX04]",
    ),
    "16 cores": (
        cloud_tpu("TPU_V2", 16),
        f"{MACHINE}.accelerator_count: TPU_V2 needs 8, 32, 128, … cores; 16 given: a v2-32 has 16 chips but 32 "
        "cores, so write 32. [VTX04]",
    ),
    "a type without a count": (
        cloud_tpu(count=0),
        f"{MACHINE}.accelerator_type: Both `accelerator_type` and `accelerator_count` should be specified or none. "
        "(TPU_V3 without a count; cloud-tpu takes TPU_V2 with 8, 32, 128, … cores or TPU_V3 with 8, 32, 64, … cores)",
    ),
    "a count without a type": (
        {"machine_type": "n1-highmem-96", "accelerator_count": 8},
        f"{MACHINE}.accelerator_type: Both `accelerator_type` and `accelerator_count` should be specified or none. "
        "(8 of no type; n1-highmem-96 takes 4 NVIDIA_TESLA_P4 or 4 NVIDIA_TESLA_T4 or 8 NVIDIA_TESLA_V100)",
    ),
    "TPU_V4_POD": (
        cloud_tpu("TPU_V4_POD"),
        f"{MACHINE}.accelerator_type: cloud-tpu does not take TPU_V4_POD: custom training documents no machine for "
        "TPU v4. [VTX02]",
    ),
    "TPU_V5_LITEPOD": (
        cloud_tpu("TPU_V5_LITEPOD"),
        f"{MACHINE}.accelerator_type: cloud-tpu does not take TPU_V5_LITEPOD: TPU v5e is asked for with machine_type "
        "ct5lp-hightpu-1t, -4t or -8t and tpu_topology alone. [VTX02]",
    ),
    "a TPU on an ordinary machine": (
        {**cloud_tpu(), "machine_type": "n1-standard-4"},
        f"{MACHINE}.accelerator_type: n1-standard-4 does not take TPU_V3: TPU_V3 goes with machine_type cloud-tpu. "
        "[VTX02]",
    ),
    "a slice as machine": (
        {"machine_type": "v5litepod-16"},
        f"{MACHINE}.machine_type: Machine type 'v5litepod-16' is not supported for custom training: v5litepod-16 is a "
        "slice; write machine_type ct5lp-hightpu-4t, tpu_topology 4x4. [VTX02]",
    ),
    "a machine of no such size": (
        {"machine_type": "n1-standard-5"},
        f"{MACHINE}.machine_type: Machine type 'n1-standard-5' is not supported for custom training: did you mean "
        "n1-standard-8 or n1-standard-4. [VTX02]",
    ),
    "a topology of another machine": (
        {"machine_type": "ct5lp-hightpu-8t", "tpu_topology": "4x4"},
        f"{MACHINE}.tpu_topology: ct5lp-hightpu-8t does not have topology '4x4': ct5lp-hightpu-4t has. [VTX02]",
    ),
    "a topology of none": (
        {"machine_type": "ct6e-standard-1t", "tpu_topology": "3x3"},
        f"{MACHINE}.tpu_topology: ct6e-standard-1t does not have topology '3x3': there are 1x1. [VTX02]",
    ),
    "three GPUs": (
        {"machine_type": "n1-standard-4", "accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 3},
        f"{MACHINE}.accelerator_count: n1-standard-4 takes 1 or 2 or 4 of NVIDIA_TESLA_T4; 3 given.",
    ),
    "a GPU's machine bare": (
        {"machine_type": "a2-megagpu-16g"},
        f"{MACHINE}.accelerator_type: a2-megagpu-16g must be used with accelerators: 16 NVIDIA_TESLA_A100. [VTX02]",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_machine_that_is_refused(name: str) -> None:
    machine, expected = REFUSED[name]
    verdict = judge(job(machine))
    assert [str(violation) for violation in verdict.violations] == [expected]
    assert verdict.warnings == ()


def test_replicas_of_a_tpu_that_has_a_topology() -> None:
    (shaped,) = judge(job({"machine_type": "ct5lp-hightpu-4t", "tpu_topology": "2x2"}, replicas=2)).violations
    assert (shaped.code, shaped.field) == ("VTX03", "job_spec.worker_pool_specs[0].replica_count")
    assert shaped.message.endswith("a larger one is asked for with a larger tpu_topology.")


def test_all_violations_in_one_text() -> None:
    faulty = job(cloud_tpu(count=4), replicas=2, tensorboard="projects/p/locations/us-central1/tensorboards/1")
    faulty.display_name = ""
    assert ApiError.of_violations(judge(faulty).violations).message == (
        "List of found errors:"
        "\t1.Field: display_name; Message: display_name is required."
        "\t2.Field: job_spec.worker_pool_specs[0].replica_count; Message: replica_count must be 1 for a TPU; given: 2: "
        "the hosts of a slice are not replicas, a larger one is asked for with a larger accelerator_count."
        "\t3.Field: job_spec.worker_pool_specs[0].machine_spec.accelerator_count; Message: TPU_V3 needs 8, 32, 64, … "
        "cores; 4 given: a v3-8 has 4 chips but 8 cores, so write 8."
        "\t4.Field: job_spec.service_account; Message: custom_job.job_spec.service_account must be specified when "
        "uploading to TensorBoard\t"
    )


def test_a_tpu_job_with_a_tensorboard_is_warned_about_both_ways_out() -> None:
    spec = {
        "tensorboard": "projects/p/locations/us-central1/tensorboards/1",
        "service_account": "trainer@p.iam.gserviceaccount.com",
        "base_output_directory": {"output_uri_prefix": "gs://b/run"},
    }
    verdict = judge(job(cloud_tpu(), **spec))
    assert verdict.violations == ()
    assert [(warning.code, warning.rule) for warning in verdict.warnings] == [
        ("VTX11", "tpu-service-account"),
        ("VTX13", "tensorboard-tpu"),
    ]
    assert verdict.warnings[0].source.startswith("a comment in XManager's client of Vertex AI (https://")


def test_a_region_without_the_tpu() -> None:
    (refused,) = judge(job(cloud_tpu()), "us-west1").violations
    assert (refused.field, refused.code) == (MACHINE, "VTX12")
    assert refused.message == "us-west1 has no TPU v3; regions with it: europe-west4, us-central1."
    v6e = {"machine_type": "ct6e-standard-4t", "tpu_topology": "2x2"}
    (warning,) = judge(job(v6e), "us-west1").warnings
    assert warning.message.startswith(
        "us-west1 is not known to have TPU v6e: the job would wait for capacity that does not come, or end with an "
        "internal error; regions with it: asia-northeast1, europe-west4,"
    )
    (refused,) = judge(job(v6e), "europe-west1").violations
    assert refused.message.startswith("europe-west1 has no TPU v6e; regions with it: ")
    (zone,) = judge(job(cloud_tpu()), "us-central1-a").warnings
    assert zone.message == (
        "'us-central1-a' is not a region of custom training that gcloud or the SDK know: did you mean us-central1."
    )
    assert judge(job(cloud_tpu())).warnings == (), "without a region, nothing is said about one"


@pytest.mark.parametrize(
    ("key", "value", "fix"),
    [
        ("Team", "nlp", "key 'Team' has capital letters: write 'team'"),
        ("team", "n.l.p", "value 'n.l.p' of 'team' has a character that is not allowed: write 'n-l-p'"),
        ("-team", "nlp", "key '-team' does not start with a letter or number"),
        ("team", "x" * 64, f"value {'x' * 64!r} of 'team' is too long"),
        ("team", "語" * 50, f"value {'語' * 50!r} of 'team' is too long"),
    ],
)
def test_labels(key: str, value: str, fix: str) -> None:
    (violation,) = judge(labelled(**{key: value})).violations
    assert violation.field == "custom_job.labels"
    assert violation.message.startswith("There can be no more than 64 labels attached to a single resource. ")
    assert violation.message.endswith(f"({fix})")


def test_labels_may_be_international_and_empty() -> None:
    assert judge(labelled(**{"größe": "語", "9": "", "a_b-c": "x" * 63})).violations == ()


QUOTED = "begins with a quote, so that it is not a flag, and T5X ends with Too many command-line arguments"
COMMA = "ends with a comma, which Gin cannot parse"


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--gin.--gin.TRAIN_STEPS=5", "has --gin. twice: write --gin.TRAIN_STEPS=5."),
        ("--gin.TRAIN_STEPS=5,", f"{COMMA}: write --gin.TRAIN_STEPS=5."),
        ("--gin.X='a',", f"{COMMA}: write --gin.X='a'."),
        ("--gin.X=5',", f"{COMMA}: write --gin.X=5."),
        ('"--gin.X=5,', f"{QUOTED}: write --gin.X=5."),
        ("'--gin.X=\"a\"',", f'{QUOTED}: write --gin.X="a".'),
        ('"--gin.X="a",', f'{QUOTED}: write --gin.X="a".'),
        ('"--gin.X="a"",', f'{QUOTED}: write --gin.X="a".'),
        ('"--gin_file=a.gin"', f"{QUOTED}: write --gin_file=a.gin."),
        ("'--run_mode=train", f"{QUOTED}: write --run_mode=train."),
        ("--tfds_data_dir=None", "names a folder that is called None: leave the flag out, or give"),
        ("--run_mode=compile", "T5X's main has no run mode 'compile': write --run_mode=precompile."),
        ("--run_mode=trian", "T5X's main has no run mode 'trian': write --run_mode=train."),
        ("-run_mode=x", "T5X's main has no run mode 'x': there are train, eval, infer, precompile, export."),
    ],
)
def test_arguments_that_t5x_stumbles_over(argument: str, said: str) -> None:
    verdict = judge(with_container(args=["--gin_file=a.gin", argument]))
    assert verdict.violations == (), "the service takes every text"
    (warning,) = verdict.warnings
    assert warning.field == "job_spec.worker_pool_specs[0].container_spec.args[1]"
    assert warning.message.removeprefix(f"{argument} ").startswith(said)


@pytest.mark.parametrize(
    "command",
    [
        ["python", "-m", "t5x.train_unfragmented"],
        ["/usr/bin/python3.11", "t5x/train_unfragmented.py"],
        ["bash", "-c", "x", "python3", "/opt/src/t5x/train_unfragmented.py", "--gin_file=a.gin"],
    ],
)
def test_a_program_that_t5x_does_not_have(command: list[str]) -> None:
    (warning,) = judge(with_container(command=command)).warnings
    assert warning.code == "VTX16"
    assert warning.message.endswith("there are t5x.main, t5x.train, t5x.eval, t5x.infer, t5x.precompile, t5x.export.")


QUOTES_OF_VALUES = ["--gin.X='a'", '--gin.X="it\'s"', "--gin.X=['a',]", "'a'", "'--other"]
PROGRAMS = [["python", "-m", "t5x.main"], ["python3", "t5x/train.py"], ["python", "-m", "my.t5x"]]


@pytest.mark.parametrize(
    "fields", [*({"args": [each]} for each in QUOTES_OF_VALUES), *({"command": each} for each in PROGRAMS)], ids=str
)
def test_quotes_of_values_and_programs_that_t5x_has_are_left_alone(fields: dict[str, list[str]]) -> None:
    assert judge(with_container(**fields)).warnings == ()


def test_messages_of_the_other_api_and_of_protobuf_are_judged_alike() -> None:
    faulty = job(cloud_tpu(count=4))
    beta = BetaCustomJob.deserialize(CustomJob.serialize(faulty))
    assert judge(beta) == judge(faulty) == judge(CustomJob.pb(faulty)) == judge(BetaCustomJob.pb(beta))
    assert len(judge(faulty).violations) == 1


def test_a_message_of_something_else() -> None:
    with pytest.raises(TypeError, match="no rules for Tensorboard: give the message of CustomJob or Hyperparameter"):
        judge(Tensorboard())


def test_pools_after_the_first_may_be_skipped() -> None:
    pools = job({"machine_type": "n1-standard-4"})
    pools.job_spec.worker_pool_specs.extend([{}, pools.job_spec.worker_pool_specs[0]])
    pools.job_spec.worker_pool_specs[2].container_spec.image_uri = ""
    assert [violation.field for violation in judge(pools).violations] == [
        "job_spec.worker_pool_specs[2].container_spec.image_uri"
    ]
    assert judge(CustomJob({"display_name": "x", "job_spec": {"worker_pool_specs": [{}]}})).violations[0].message == (
        "worker_pool_specs needs at least the first pool: only those after it may be empty."
    )
