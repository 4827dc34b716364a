"""Writes a model with its parameters as a TensorFlow SavedModel.

usage: python -m t5x.export --gin_file=MODEL.gin --gin_file=t5x/configs/runs/export.gin [--gin.MACRO=VALUE ...] [flags]
"""

from __future__ import annotations

from t5x.export_lib import save

if __name__ == "__main__":
    from t5x import _script

    _script.run_script(save)
