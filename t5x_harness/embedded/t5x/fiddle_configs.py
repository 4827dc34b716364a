"""Not in the embedded T5X runtime: the import says what there is instead."""

from t5x._absent import module_error

raise module_error(__name__)
