"""A decoder alone: causal and prefix language models."""
