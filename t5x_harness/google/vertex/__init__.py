"""The server side of Vertex AI, as far as training needs it; loaded with the first request.

``wire`` reads requests, ``methods`` has the function for each, and ``services`` has the objects that these functions
use. ``state`` stores everything, and ``messages`` handles names, filters, pages and masks. ``jobs``, ``metadata``,
``tensorboard`` and ``models`` have the functions. Messages are those of Google's own library,
``google-cloud-aiplatform``.
"""
