"""Rules for the specs of Vertex AI jobs: errors that the service refuses, and errors that break only the job itself."""
