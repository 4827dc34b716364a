"""Rules for the specs of Vertex AI jobs: errors that the service refuses, and errors that break only the job itself."""

from t5x_harness.google.vertex.validation.judging import (
    SpecVerdict,
    SpecViolation,
    accelerator_meant,
    judge,
    misspelt_accelerators,
    service_rules,
)

__all__ = ["SpecVerdict", "SpecViolation", "accelerator_meant", "judge", "misspelt_accelerators", "service_rules"]
