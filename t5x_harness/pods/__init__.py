"""Pods: the hosts of a TPU slice as processes of this machine, which run a config together and end together."""
