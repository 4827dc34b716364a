"""The rules of plan, one small module for each concept; a new module here is found by itself."""
