"""What happens inside a run's process after the plan: shrink, train, eval, infer. Heavy imports are at home here."""
