"""The Gin text of a model as small as shrinking would make it, for each mode."""

MODEL = """
from __gin__ import dynamic_registration
import __main__ as {mode}_script
import seqio
from t5x import models
from t5x import partitioning
from t5x import trainer
from t5x import utils
from t5x.examples.t5 import network
include 't5x/examples/t5/t5_1_1/tiny.gin'
include 't5x/configs/runs/{run}.gin'
import stage_tasks

MIXTURE_OR_TASK_NAME = 'ref_reverse'
TASK_FEATURE_LENGTHS = {{'inputs': 32, 'targets': 16}}
DROPOUT_RATE = 0.0
VOCABULARY = @seqio.ByteVocabulary()
network.T5Config.vocab_size = 384
network.T5Config.emb_dim = 16
network.T5Config.num_heads = 8
network.T5Config.head_dim = 4
network.T5Config.mlp_dim = 32
network.T5Config.dtype = 'float32'
"""
