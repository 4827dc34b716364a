"""Static reading of gin: finds the mistakes in a config without importing T5X, JAX or TensorFlow."""
