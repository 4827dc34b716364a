"""Stands for T5X on a TPU's machine: says what the log of a run of this name shall have, and leaves a trained step."""

from __future__ import annotations

import sys

import t5x_stand_in

HEAD = "I1122 07:58:04.897587 140352944569216 "
SAYS = {
    "on-tpu": [
        "partitioning.py:257] global_mesh devices: [[TpuDevice(id=0, process_index=0, coords=(0,0,0), core_on_chip=0)]",
        " [TpuDevice(id=1, process_index=0, coords=(0,0,0), core_on_chip=1)]",
        "partitioning.py:258] global_mesh devices shape: (8, 1)",
    ],
    "without-libtpu": ["xla_bridge.py:849] Unable to initialize backend 'tpu': INTERNAL: Failed to open libtpu.so"],
    "silent": [],
}

if __name__ == "__main__":
    [name] = [name for name in SAYS if f"/test-{name}/" in " ".join(sys.argv)]  # in MODEL_DIR
    for line in SAYS[name]:
        print(HEAD + line, flush=True)
    sys.exit(t5x_stand_in.main(sys.argv[1:]))
