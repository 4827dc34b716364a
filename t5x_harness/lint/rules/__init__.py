"""The lint rules, one small module each; a new module here is a new rule, with nothing else to edit."""
