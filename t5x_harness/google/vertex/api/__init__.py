"""What all services of the emulated Vertex AI have in common: names, resources, lists, operations, transports."""
