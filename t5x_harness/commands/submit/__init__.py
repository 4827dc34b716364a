"""`t5x-harness submit`: a config sent to Vertex AI as it is."""
