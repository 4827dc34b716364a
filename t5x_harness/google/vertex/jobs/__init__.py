"""JobService: custom jobs and hyperparameter tuning jobs, which really run, as processes of this machine.

``machine`` decides what becomes of a job, ``driver`` carries it out, and ``launching`` says what a replica is started
with. Each process of a job begins with the guard of this package, so nothing is imported here.
"""
