"""``/gcs``: Cloud Storage as a folder, the same files as ``gs://``, for commands and for forked runs.

``/gcs/<bucket>/<object>`` is the store's file ``<root>/buckets/<bucket>/<object>``. ``probing.refusal`` finds out
whether this machine can show it, ``probing.launched`` is for commands, ``mount.enter`` is for a process that was just
forked, and ``probing.rewrite`` changes texts and words on machines that allow no mounts.
"""
