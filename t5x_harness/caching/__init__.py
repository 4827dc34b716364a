"""Caches of SeqIO tasks: their preprocessed examples as files that SeqIO reads where ``use_cached`` is set."""
