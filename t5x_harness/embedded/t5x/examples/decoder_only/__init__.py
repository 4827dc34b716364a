"""Decoder-only models: causal and prefix language models."""
