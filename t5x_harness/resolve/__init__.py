"""The resolve package: the objects behind a config's bindings, and a sample of its data."""
