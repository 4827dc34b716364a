"""Stand-ins: what a config names and this machine cannot reach, generated to fit."""
