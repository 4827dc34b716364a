"""Everything that touches a private name of another library."""
