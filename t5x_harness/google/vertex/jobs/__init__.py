"""JobService: custom jobs and hyperparameter tuning jobs, which run as processes of this machine.

``machine`` decides what happens to a job, ``driver`` carries it out, and ``launching`` prepares each replica.
Each process of a job begins with the guard of this package, so nothing is imported here.
"""
