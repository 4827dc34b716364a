"""A small training program in the form that Vertex AI runs: ``python -m trainer.task`` here, a job there."""
