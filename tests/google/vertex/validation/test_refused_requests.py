"""What Vertex AI refuses is refused over the wire, too: the unmodified SDK raises InvalidArgument, without a job."""

from collections.abc import Callable
from typing import Any

import job_documents
import job_faults
from test_spec_rules import RULES

from t5x_harness.google.session import EmulatedCloud
from t5x_harness.google.vertex_admin import FakeVertex

SEND = """
    from google.api_core import exceptions
    from google.cloud import aiplatform_v1

    result = []
    for kind, text, location in requests:
        init(location=location)
        client = ai.initializer.global_config.create_client(aiplatform_v1.JobServiceClient)
        parent = f"projects/t5x-harness/locations/{location}"
        message = getattr(aiplatform_v1, kind).deserialize(bytes.fromhex(text))
        try:
            if kind == "CustomJob":
                client.create_custom_job(parent=parent, custom_job=message)
            else:
                client.create_hyperparameter_tuning_job(parent=parent, hyperparameter_tuning_job=message)
            result.append("made")
        except exceptions.InvalidArgument as error:
            result.append(error.message)
"""


def test_each_fault_that_vertex_refuses_is_an_invalid_argument(
    sdk: Callable[..., Any], fake_gcs_server: EmulatedCloud
) -> None:
    faults, requests = [], []
    for fault in (*job_faults.FAULTS, *job_faults.TUNING_FAULTS):
        examples = job_documents.EXAMPLES if fault in job_faults.FAULTS else [job_documents.TUNING_EXAMPLE]
        if RULES[fault.rule].refuses and not fault.location:
            job = fault.apply(next(job for job in examples if fault.fits(job)))
            message = job.message
            text = message.SerializeToString().hex()
            faults.append((fault, job))
            requests.append((type(message).__name__, text, job.location))
    answers = sdk(SEND, requests=requests)
    wrong = [
        (fault.rule, answer)
        for (fault, job), answer in zip(faults, answers, strict=True)
        if answer == "made" or fault.place(job) not in answer
    ]
    assert not wrong, "\n".join(map(str, wrong))
    assert len(faults) > 50
    assert FakeVertex(fake_gcs_server).jobs() == []
