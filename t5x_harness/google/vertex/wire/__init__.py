"""How requests come to methods: over gRPC as bytes, over HTTP as JSON, and errors back."""
