"""An emulated Google Cloud: a server process that unmodified clients of Google's libraries talk to.

``environment`` has the variables that bring clients here. ``server.process`` accepts connections: ``server.tunnel``
ends TLS for those from the proxy, ``server.http1`` reads requests, ``server.router`` says by host and path who answers.
Cloud Storage is ``storage_http.app`` on top of ``storage.store``; Vertex AI is ``server.vertex_endpoint`` (JSON) and
``server.grpc_endpoint``, which both end in ``vertex.wire.api``: it reads a request and calls the function that
``vertex.methods`` has for it. ``gcs_mount`` is the same storage as the folder ``/gcs``.
"""
