"""Cloud TPU VMs: nodes and queued resources as ``gcloud compute tpus`` has them, whose workers are processes here.

``vms`` keeps them, ``checks`` says what the service takes, ``service`` speaks JSON, ``workers`` is what a worker's
processes run in, and ``remote_shell`` is the ``ssh`` and ``scp`` that gcloud finds on PATH.
"""
