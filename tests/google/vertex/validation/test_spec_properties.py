"""Jobs that the service accepts cause no message, and each single fault causes exactly its violation."""

from __future__ import annotations

import functools
from typing import Any

import job_documents
import job_faults
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t5x_harness.google.vertex import validation
from t5x_harness.google.vertex.validation import service_rules
from t5x_harness.vertex.job_rules import job_rules

judge = functools.partial(validation.judge, more=job_rules())

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
    # A job with a TPU and a TensorBoard breaks two rules at once; see test_spec_rules.
    assert set(RULES) - {fault.rule for fault in ALL_FAULTS} == {"tensorboard-tpu"}
