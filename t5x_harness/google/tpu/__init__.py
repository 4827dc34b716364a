"""Cloud TPU VMs: nodes and queued resources for ``gcloud compute tpus``, whose workers are processes of this machine.

``service`` is the API, ``vms`` has its resources, and ``checks`` checks requests. ``workers`` is what a worker's
processes run in, and ``remote_shell`` is the ``ssh`` and ``scp`` that gcloud finds on PATH.
"""
