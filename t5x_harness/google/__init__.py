"""An emulated Google Cloud: a server process that unmodified clients of Google's libraries talk to.

``environment`` has the variables that redirect clients to the server. ``server.process`` accepts connections:
``server.tunnel`` ends TLS for connections through the proxy, ``server.http1`` reads requests, and ``server.router``
picks the application that answers a request by its host and path. Cloud Storage is ``storage_http.app`` on top of
``storage.store``. Vertex AI is ``server.vertex_endpoint`` (JSON) and ``server.grpc_endpoint``; both end in
``vertex.wire.api``, which parses a request and calls its function in the table ``vertex.methods``. ``gcs_mount`` is the
same storage as the folder ``/gcs``.
"""
