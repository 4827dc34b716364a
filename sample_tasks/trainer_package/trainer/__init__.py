"""A small training program in the form that Vertex AI runs: ``python -m trainer.task`` runs here or in a job."""
