"""The work of a run's process after the plan: shrink, train, eval, infer. Heavy imports belong here."""
