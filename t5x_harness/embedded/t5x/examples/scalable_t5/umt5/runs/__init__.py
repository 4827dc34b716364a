"""What all runs of umT5 have in common."""
