"""A program of a run, lowered for the devices of a slice as the TPU compiler describes them."""

from __future__ import annotations

from t5x_harness.aot.compiler import fingerprint
from t5x_harness.aot.libtpu import describe_devices
from t5x_harness.aot.programs import lower
from t5x_harness.aot.request import LoweredProgram, ProgramSpec
from t5x_harness.gin.config import GinConfig
from t5x_harness.slices.slice import Slice
from t5x_harness.upstream.t5x import install_mesh


class Lowering:
    """Lowers a program; this process builds meshes of the slice's own devices from then on.

    Args:
      program: which.
      config: the run's config.
      slice_: the slice.

    Raises:
      LibtpuMissing: there is no TPU compiler.
      Exception: what T5X, the model or JAX raises.
    """

    def __init__(self, program: ProgramSpec, config: GinConfig, slice_: Slice) -> None:
        install_mesh(slice_, devices=describe_devices(slice_))
        partitioner = config.build("partitioner")
        state, self.lowered = lower(program, config, partitioner)
        text = self.lowered.as_text()
        mesh = partitioner.mesh
        devices = tuple(int(device.id) for device in mesh.devices.flat)
        self.described = LoweredProgram(
            fingerprint(text, slice_, devices),
            text.count("\n"),
            dict(mesh.shape),
            devices,
            state.device_bytes(mesh.shape),
        )
