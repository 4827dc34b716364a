"""What stands behind ``t5x.train``, ``t5x.eval``, ``t5x.infer``, ``t5x.trainer`` and ``t5x.main``.

Private: users import the public modules.  Each file here holds one concept of a run, so that it can be read and
tested on its own.
"""
