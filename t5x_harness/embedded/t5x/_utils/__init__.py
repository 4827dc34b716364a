"""What ``t5x.utils`` is made of, one concept a module; ``t5x.utils`` is the public name of all of it."""
