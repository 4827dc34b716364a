"""What kind of network umT5 is."""
