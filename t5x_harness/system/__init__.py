"""Processes, the network, and what is known of this machine."""
