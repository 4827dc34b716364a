"""Folders of this machine and of buckets: their addresses, their contents, and who may write them."""
