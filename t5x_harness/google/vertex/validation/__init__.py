"""Rules for the specs of Vertex AI jobs, for errors that the service refuses and errors that only break the job."""

from t5x_harness.google.vertex.validation.judging import (
    SpecVerdict,
    SpecViolation,
    accelerator_meant,
    judge,
    misspelt_accelerators,
    service_rules,
)

__all__ = ["SpecVerdict", "SpecViolation", "accelerator_meant", "judge", "misspelt_accelerators", "service_rules"]
