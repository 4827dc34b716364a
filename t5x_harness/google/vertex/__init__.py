"""Vertex AI as far as training needs it: the server's side, loaded with the first request.

``wire`` reads requests, ``methods`` has the function for each, and ``services`` is what these functions use. ``state``
keeps everything, and ``messages`` handles names, filters, pages and masks. ``jobs``, ``metadata``, ``tensorboard`` and
``models`` have the functions. Messages are those of Google's own library, ``google-cloud-aiplatform``.
"""
