"""AOT01 and AOT02, which the compiler finds: programs that no device has the memory for, or that no TPU can run."""

from t5x_harness.findings.rule import FILES, Example, Rule, training
from t5x_harness.spec import Stage

_MODEL = """\
import jax.numpy as jnp
from t5x import models


class SpectralModel(models.EncoderDecoderModel):
    def loss_fn(self, params, batch, dropout_rng, *args, **kwargs):
        loss, metrics = super().loss_fn(params, batch, dropout_rng, *args, **kwargs)
        kernel = params['decoder']['layers_0']['self_attention']['query']['kernel']
        return loss + jnp.{penalty}, metrics
"""


def _spectral(penalty: str) -> Example:
    example = training(
        "MODEL = @spectral.SpectralModel()",
        "spectral.SpectralModel.module = @network.Transformer()",
        "spectral.SpectralModel.input_vocabulary = %VOCABULARY",
        "spectral.SpectralModel.output_vocabulary = %VOCABULARY",
        "spectral.SpectralModel.optimizer_def = %OPTIMIZER",
    )
    files = {**FILES, "spectral.py": _MODEL.format(penalty=penalty)}
    return Example(example.gin.replace("import counting\n", "import counting\nimport spectral\n"), files=files)


AOT01 = Rule(
    "AOT01",
    "program that does not fit the memory of a device",
    name="OutOfDeviceMemory",
    stage=Stage.AOT,
    why=(
        "On the slice, the compiler says RESOURCE_EXHAUSTED after minutes of setup, and the job ends. The memory for "
        "parameters and optimizer is known before (MSH09), but only the compiler knows the memory for activations and "
        "temporary values. It runs here with `--aot`."
    ),
    bad=training(
        "BATCH_SIZE = 1_048_576",
        "train_eval/utils.DatasetConfig.batch_size = 128",
        at="BATCH_SIZE = 1_048_576",
    ),
    good=training("BATCH_SIZE = 128"),
)


AOT02 = Rule(
    "AOT02",
    "program that cannot be lowered for a TPU",
    name="NotForTpu",
    stage=Stage.AOT,
    why=(
        "Some operations of JAX exist for CPUs only, such as the eigenvalues of a matrix that is not symmetric. "
        "A run here accepts them; the job stops when it traces its first step."
    ),
    bad=_spectral("abs(jnp.linalg.eigvals(kernel @ kernel.T)).max()"),
    good=_spectral("abs(kernel).max()"),
)


RULES = (AOT01, AOT02)
