"""Model Registry, as metadata: models with their versions and aliases. Nothing of it is served or predicts."""
