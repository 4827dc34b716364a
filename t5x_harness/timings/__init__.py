"""Where the seconds of a run go."""
