"""Cloud TPU VMs: nodes and queued resources for ``gcloud compute tpus``, whose workers are processes of this machine.

``service`` is the API, ``vms`` has its resources, and ``checks`` checks requests. ``workers`` is the environment of a
worker's processes, and ``remote_shell`` is the ``ssh`` and ``scp`` that gcloud finds on PATH.
"""
