"""The rules of resolve, one small module for each concept; a new module here is found by itself."""
