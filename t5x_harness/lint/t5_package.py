"""The package ``t5``: how to install it, and what replaces it if it is not installed."""

NAME = "t5"

INSTALL = "python -m pip install babel nltk rouge-score scikit-learn, then python -m pip install --no-deps t5"
"""How to install it: its own dependencies include seqio-nightly and tfds-nightly, which overwrite SeqIO and TFDS."""

MODULES = frozenset({"t5", "t5.data", "t5.data.mixtures", "t5.data.tasks"})
"""The modules that a run can import without the package."""

TASKS = ("c4_v220_span_corruption", "wmt14_enfr_v003", "wmt19_ende_v003", "wmt_t2t_ende_v003")
"""The tasks that these modules then register: those that T5X's own configs name."""
