"""Checkpoints of T5X as folders of transformers, or as plain safetensors, and back."""
