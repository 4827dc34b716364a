"""A small training program in the form that Vertex AI runs: here with ``python -m trainer.task``, there as a job."""
