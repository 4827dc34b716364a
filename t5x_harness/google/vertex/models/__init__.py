"""Model Registry as metadata: models with their versions and aliases. No model is served."""
