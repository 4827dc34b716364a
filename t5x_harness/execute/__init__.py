"""What happens inside a run's process: resolve, plan, shrink, train, eval, infer. Heavy imports are at home here."""
