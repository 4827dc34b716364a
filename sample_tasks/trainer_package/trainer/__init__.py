"""A small training program that Vertex AI can run as a job; ``python -m trainer.task`` runs it here."""
