"""The resolve room: a config parsed for real, the objects behind its bindings, and a look at its data."""
