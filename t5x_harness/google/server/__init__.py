"""The server process that unmodified Google clients talk to, over HTTP, TLS, gRPC and a proxy."""
