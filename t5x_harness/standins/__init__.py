"""Stand-ins: generated replacements for vocabularies, data and checkpoints that this machine cannot reach."""
