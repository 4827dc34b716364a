"""The stage ``resume``: a training that is killed and goes on is compared with one that was not."""
