"""Which T5X runs, and the environment in which programs import it."""
