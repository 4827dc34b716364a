"""Not in the embedded T5X runtime: the import says what there is instead."""

from t5x._absent import refuse_module

refuse_module("t5x.fiddle_configs", is_program=__name__ == "__main__")
