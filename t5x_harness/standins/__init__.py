"""Stand-ins: what a config names and this machine cannot reach, made up to fit."""
