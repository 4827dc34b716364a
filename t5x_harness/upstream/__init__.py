"""All code that touches private names of other libraries."""
