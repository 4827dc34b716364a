"""The T5 encoder-decoder family."""
