"""The private Google: storage, tokens and a proxy that unmodified clients talk to. Nothing here reaches a network."""
