"""Converts T5X checkpoints to transformers folders or plain safetensors, and back."""
