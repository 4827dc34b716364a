"""Processes, the network, and facts about this machine."""
