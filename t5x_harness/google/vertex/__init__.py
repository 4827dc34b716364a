"""Vertex AI, as far as training needs it: the server's side, loaded when the first request for it comes.

``state`` keeps everything, ``api`` is what all services have in common, and each other package is a part with the
methods of one service. Messages are those of Google's own library, ``google-cloud-aiplatform``.
"""
