"""Takes a RunSpec through its stages to a RunResult, here or on Vertex AI."""
