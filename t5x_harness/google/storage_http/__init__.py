"""Cloud Storage over HTTP: the JSON and XML APIs as an ASGI application over the store."""
