"""Caches of SeqIO tasks: their preprocessed examples as files that SeqIO reads if ``use_cached`` is set."""
