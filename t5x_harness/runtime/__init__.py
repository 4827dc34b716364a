"""The choice of the T5X that runs, and the environment in which programs import it."""
