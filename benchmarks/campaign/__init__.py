"""The campaign of mistakes: mutants of small configs, run by T5X itself and by the harness, and compared.

:mod:`mutants` and its neighbors make mutants of the configs in ``project/``, :mod:`oracle` lets T5X run one without any
check of the harness, :mod:`campaign.running` runs both, and :mod:`judging` compares what they say.
"""
