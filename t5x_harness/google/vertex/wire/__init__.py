"""Requests to methods, over gRPC as bytes and over HTTP as JSON, and their errors."""
