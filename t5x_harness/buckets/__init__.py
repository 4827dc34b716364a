"""Folders on this machine and in buckets: their addresses, their contents, and the locks for their writers."""
