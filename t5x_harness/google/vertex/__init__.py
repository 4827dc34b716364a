"""Vertex AI, as far as training needs it: the server's side, loaded when the first request for it comes.

``wire`` reads requests, ``methods`` has the function for each, ``services`` what these are written with: ``state``
keeps everything, and ``messages`` reads names, filters and masks. ``jobs``, ``metadata`` and ``tensorboard`` have the
methods themselves. Messages are those of Google's own library, ``google-cloud-aiplatform``.
"""
