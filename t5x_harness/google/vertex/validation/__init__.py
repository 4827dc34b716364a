"""Rules for the specs of Vertex AI jobs: what the service refuses, and what it takes and the job suffers from."""

from t5x_harness.google.vertex.validation.judging import (
    SpecVerdict,
    SpecViolation,
    accelerator_meant,
    judge,
    misspelt_accelerators,
    service_rules,
)

__all__ = ["SpecVerdict", "SpecViolation", "accelerator_meant", "judge", "misspelt_accelerators", "service_rules"]
