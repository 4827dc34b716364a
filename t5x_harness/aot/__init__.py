"""The full-size steps compiled for the real slice: what they need of its memory, and what they cost."""
