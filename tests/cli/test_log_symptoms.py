"""The texts of jobs that died are recognized: those recorded from JAX's processes, and those that users reported."""

import json
import tracemalloc
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from t5x_harness.resolve.known_errors import KnownError, reword
from t5x_harness.rulebook.codes import AUXILIARY_CODES, NOT_CAUGHT, RUN_CODES, every_code, rules_by_code
from t5x_harness.symptoms.log_lines import log_lines, text_lines
from t5x_harness.symptoms.recognize import Symptom, read_log, recognize
from t5x_harness.symptoms.table import progress, progress_parts, symptom_codes

LOGS = Path(__file__).parents[1] / "reference" / "logs"

RECORDED = {
    "barrier_skipped": ("POD16", 1, "host 1 did not reach the barrier save_5 in time"),
    "host_0_killed": ("POD13", 0, "host 0 no longer answers host 1"),
    "host_0_killed_in_collective": ("POD13", 0, "host 0 no longer answers host 1"),
    "host_1_ends_later": ("POD19", 1, "host 1 still ran when the others had ended"),
    "host_1_killed": ("POD12", 1, "host 1 stopped sending heartbeats"),
    "host_1_late": ("POD15", 1, "host 1 did not publish its devices (cpu:local_topology/cpu/1) in time"),
    "host_1_raised": ("RUN01", 1, "host 1 stopped with ValueError: planted, raised at host.py:27"),
    "host_1_restarted": ("POD14", 1, "host 1 was started again while the others still ran"),
    "host_1_stopped": ("POD12", 1, "host 1 stopped sending heartbeats"),
    "host_2_of_3_killed": ("POD12", 2, "host 2 stopped sending heartbeats"),
    "only_host_0_started": (
        "POD15",
        0,
        "host 0 waited for the other hosts until its time limit, and they did not all start",
    ),
    "only_host_1_started": (
        "POD15",
        1,
        "host 1 waited for the other hosts until its time limit, and they did not all start",
    ),
    "other_barrier": ("POD16", 0, "host 0 was at the barrier train:end, and another host at a different one"),
    "other_data": ("POD04", 0, "the hosts' data differs: element shapes do not agree"),
    "other_shapes": ("POD11", 0, "host 0 received an array of another size than its own in a collective"),
    "preemption_service_off": (
        "POD18",
        0,
        "host 0 asked for a preemption sync point, and the preemption service is not running",
    ),
    "sigterm": ("POD17", 1, "host 1 received SIGTERM at 2026-11-27T17:06:29.458791386+00:00"),
}
"""What each recorded log died of. Its file's name says what was done to two or three processes."""

REPORTED = {
    "UserWarning: TPU backend initialization is taking more than 60.0 seconds. Did you run your code": (
        "POD01",
        "a host waited more than 60.0 seconds for the TPU of its slice",
    ),
    "RuntimeError: ABORTED: The TPU is already in use by process with pid 271. Not attempting to load libtpu.so": (
        "POD02",
        "a host cannot open its TPU: process 271 holds it",
    ),
    "ABORTED: The TPU is already in use by another process probably owned by another user. Run": (
        "POD02",
        "a host cannot open its TPU: another process holds it",
    ),
    "libtpu.so already in use by another process probably owned by another user.": (
        "POD02",
        "a host cannot open its TPU: another process holds it",
    ),
    "INTERNAL: Couldn't open iommu group /dev/vfio/0": (
        "POD02",
        "a host cannot open its TPU: the device is held by another process",
    ),
    "AssertionError: Dataset lengths do not agree across hosts.. Expected: [3 4]; got: 3.": (
        "POD04",
        "the hosts' data differs: lengths do not agree",
    ),
    "AssertionError: Eval step mismatch across hosts. Check for empty dataset shard.. Expected: [1 -1]; got: 1.": (
        "POD04",
        "the hosts do not have the same number of evaluation batches",
    ),
    "AssertionError: `seed` is not same across hosts; 3 has a seed of 7": (
        "POD04",
        "the hosts were given different seeds for the dataset",
    ),
    "Megascale hang detected: Timed out waiting for 4 graphs to complete at launch_id 13650.": (
        "POD06",
        "the slices wait for each other: 4 programs did not finish in time",
    ),
    "TPU Execute is taking a long time. This might be due to a deadlock between multiple TPU cores": (
        "POD06",
        "a program has run on the TPU of a host for very long: its cores may wait for each other",
    ),
    "ValueError: UNKNOWN: Gloo all-reduce failed: [gloo/transport/tcp/buffer.cc:81] Timed out waiting 30000ms": (
        "POD06",
        "a host waited for the others too long in all-reduce",
    ),
    "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats): /job:jax_worker/replica:0/task:3": (
        "POD12",
        "host 3 stopped sending heartbeats",
    ),
    "UNAVAILABLE: Task /job:jax_worker/replica:0/task:37 heartbeat timeout. This indicates that the remote task": (
        "POD12",
        "host 37 stopped sending heartbeats",
    ),
    "UNKNOWN: Gloo AllGather failed: [gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.2]:28048": (
        "POD12",
        "a host lost its connection to another host in AllGather: Connection closed by peer",
    ),
    "RuntimeError: [external/gloo/gloo/transport/tcp/pair.cc:538] Read error [10.0.0.2]:1: Connection reset by peer": (
        "POD12",
        "a host lost its connection to another host: Connection reset by peer",
    ),
    "Terminating process because the JAX distributed service detected fatal errors. This most likely indicates": (
        "POD12",
        "a host ended itself, because the coordination service reported that another host failed",
    ),
    "Terminating process because the coordinator detected missing heartbeats. This most likely indicates": (
        "POD12",
        "a host ended itself, because the coordination service missed heartbeats",
    ),
    "Killed": ("POD12", "the shell reports that a process of a host was killed (SIGKILL)"),
    "start.sh: line 3: 25559 Killed                  python3 -m t5x.train": (
        "POD12",
        "the shell reports that a process of a host was killed (SIGKILL)",
    ),
    "The replica workerpool0-0 exited with a non-zero status of 137.": (
        "POD12",
        "the process of workerpool0-0 was ended by SIGKILL (status 137)",
    ),
    "##### Command execution on worker 2 failed with exit status 137. Continuing.": (
        "POD12",
        "the process of host 2 was ended by SIGKILL (status 137)",
    ),
    "[task 1] exit status -9": ("POD12", "the process of host 1 was ended by SIGKILL (status -9)"),
    "Failed to send RPC to coordination service. Either the leader task was preempted/died/restarted unexpectedly": (
        "POD13",
        "host 0 no longer answers a host",
    ),
    "Leader incarnation ID mismatch: the coordination  leader (usually slice 0 task 0) has restarted.": (
        "POD13",
        "host 0 was started again while the others were still running",
    ),
    "Coordination service has stopped. RecordHeartbeat() from task: 3": (
        "POD13",
        "the coordination service of host 0 had stopped when RecordHeartbeat was called",
    ),
    "ABORTED: /job:jax_worker/replica:0/task:3 unexpectedly tried to connect with a different incarnation. It has": (
        "POD14",
        "host 3 was started again while the others still ran",
    ),
    "ABORTED: Heartbeat: Incarnation ID mismatch: expecting 1 but got 2": (
        "POD14",
        "a host was started again while the others still ran",
    ),
    "Different local topology for node 2 has been set previously, possibly before a restart.": (
        "POD14",
        "host 2 was started again while the others still ran",
    ),
    "An unexpected peer shows up in the launch group with a different launch id than the current group leader.": (
        "POD14",
        "the hosts' TPUs were not given the same program: one host was started again, or runs other code",
    ),
    "DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect. Timed out task names:": (
        "POD15",
        "a host waited for the other hosts until its time limit, and they did not all start",
    ),
    "DEADLINE_EXCEEDED: Connect() timed out after 5m with 31 attempts.": (
        "POD15",
        "a host could not connect to host 0 in 5m",
    ),
    "DEADLINE_EXCEEDED: GetKeyValue() timed out with key: cpu:global_topology/cpu and duration: 5m": (
        "POD15",
        "a host waited too long for cpu:global_topology/cpu, which another host has to publish",
    ),
    "TimeoutError: Timed out while waiting for barrier save_5": (
        "POD16",
        "a host waited for the others too long at the barrier save_5",
    ),
    "Received preemption notice with death_time 2026-11-27T17:06:59+00:00": (
        "POD17",
        "a host was given notice that its machine goes away at 2026-11-27T17:06:59+00:00",
    ),
    "*** SIGTERM received by PID 12 (TID 12) on cpu 3 from PID 1; stack trace: ***": (
        "POD17",
        "process 12 of a host received SIGTERM",
    ),
    "Received SIGTERM: the training ends after this step with a checkpoint.": (
        "POD17",
        "a host received SIGTERM, and t5x_harness.preemption ended the training with a checkpoint",
    ),
    "t5x.trainer.PreemptionError": (
        "POD17",
        "a host stopped with T5X's PreemptionError, which writes an emergency checkpoint first",
    ),
    '{"protoPayload": {"methodName": "compute.instances.preempted"}}': ("POD17", "a machine was preempted"),
    "train-0 container exited with code 143": ("POD17", "the process of a host was ended by SIGTERM (status 143)"),
    "Barrier failed because service is shutting down. Barrier_id: eval_3": (
        "POD19",
        "a host was at the barrier eval_3 when the coordination service ended",
    ),
    "INTERNAL: Shutdown barrier has failed.": ("POD19", "the hosts did not end together: the shutdown barrier failed"),
    "Replicas low on memory: workerpool0. Specify a machine with larger memory and try again.": (
        "POD20",
        "the machines of workerpool0 ran out of memory",
    ),
    "kernel: Out of memory: Killed process 1234 (python3) total-vm:99999kB": (
        "POD20",
        "the kernel of a host killed process 1234 (python3), because memory ran out",
    ),
    "Memory cgroup out of memory: Killed process 1234 (python3) total-vm:99999kB": (
        "POD20",
        "the kernel of a host killed process 1234 (python3), because its container's memory ran out",
    ),
    "    Reason:       OOMKilled": ("POD20", "the container of a host was killed, because its memory ran out"),
    "  what():  std::bad_alloc": ("POD20", "a host could not allocate memory"),
    "JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 400000000000000 bytes.": (
        "POD20",
        "a host could not allocate 400000000000000 bytes",
    ),
    "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.11 PiB for an array": (
        "POD20",
        "a host could not allocate memory",
    ),
    "OSError: [Errno 12] Cannot allocate memory": ("POD20", "a host could not allocate memory"),
    "Fatal Python error: Segmentation fault": ("POD21", "a host crashed: Segmentation fault"),
    "terminate called after throwing an instance of 'std::runtime_error'": (
        "POD21",
        "a host crashed: an exception of C++ was not caught (std::runtime_error)",
    ),
    "k.sh: line 3: 25560 Segmentation fault      python3 -m t5x.train": (
        "POD21",
        "the shell reports that a process of a host crashed: segmentation fault",
    ),
    "*** SIGSEGV (@0x10), see go/stacktraces received by PID 2260154 (TID 2260154) on cpu 10; stack trace: ***": (
        "POD21",
        "a host crashed: segmentation fault",
    ),
    "INTERNAL: Core halted unexpectedly: INTERNAL: Accelerator device halted prematurely": (
        "POD21",
        "a TPU core of a host halted",
    ),
    "The replica workerpool0-0 exited with a non-zero status of 139.": (
        "POD21",
        "the process of workerpool0-0 crashed: segmentation fault (status 139)",
    ),
    "XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 21.95G of 15.48G hbm.": (
        "AOT01",
        "a program needs 21.95G of a device's hbm, which has 15.48G",
    ),
    "Attempting to reserve 3.95G at the bottom of memory. That was not possible. There are 1.92G free, 0B": (
        "AOT01",
        "a device of a host had 1.92G of its memory free, and 3.95G was needed",
    ),
    "xla/service/hlo_rematerialization.cc:3005] Can't reduce memory use below 26.14GiB (28065947629 bytes) "
    "by rematerialization; only reduced to 34.30GiB (36831593796 bytes), down from 34.44GiB": (
        "AOT01",
        "a program needs 34.30GiB of a device's memory, however much XLA computes again, and 26.14GiB were left for it",
    ),
    "AssertionError: gs://b/run/checkpoint_99/state": ("CKP04", "the checkpoint gs://b/run/checkpoint_99 is not there"),
    "ValueError: Found improperly formatted checkpoint directory.": (
        "CKP05",
        "the folder that is to be restored is not a checkpoint",
    ),
    "ValueError: Shape of `state/v` in checkpoint (2048,) does not match expected (768,).": (
        "CKP06",
        "state/v has the shape (2048,) in the checkpoint, and (768,) in the model",
    ),
    "ValueError: pytree structure error: different numbers of pytree children at key path": (
        "CKP07",
        "the checkpoint and the model do not have the same parameters",
    ),
    "ValueError: Checkpoint versions earlier than 2 are not supported. Got version: 0": (
        "CKP08",
        "the checkpoint says that it is of version 0, which T5X does not read",
    ),
    "ValueError: Checkpoint path should be absolute. Got runs/a/checkpoint_5": (
        "CKP11",
        "the path runs/a/checkpoint_5 is relative",
    ),
    "ValueError: `state_transformation_fns` must be provided with `fallback_to_scratch`": (
        "CKP17",
        "fallback_to_scratch is bound without state_transformation_fns",
    ),
    "ValueError: Cannot initialize from a TensorFlow checkpoint using `state_transformation_fns`.": (
        "CKP18",
        "a TensorFlow checkpoint cannot be restored with transformations",
    ),
    "ValueError: Restore checkpoint mode 'all' is not supported in training.": (
        "CKP19",
        "restore mode all is not supported in training",
    ),
    "ValueError: Must provide matching configurations of `checkpoint_manager_cls` in `save_cfg` and": (
        "CKP19",
        "saving and restoring use different classes of checkpoint managers",
    ),
    "ValueError: `SaveCheckpointConfig.dtype` must be one of None, 'float32' or 'bfloat16'. Got fp32.": (
        "CKP20",
        "SaveCheckpointConfig.dtype is fp32",
    ),
    'Error opening "zarr" driver: Expected "compressor" of {"id":"gzip"} but received: {"id":"zstd"} [': (
        "CKP09",
        'an array is compressed with {"id":"zstd"}, and {"id":"gzip"} was expected',
    ),
    "FAILED_PRECONDITION: Failed to acquire lock on file: /gcs/b/run/checkpoint_5": (
        "CKP12",
        "a host could not lock a file of its checkpoint",
    ),
    "NotFoundException: 404 gs://b/run/checkpoint_966000.tmp-1676360415/target.decoder.kernel/0.0 does not exist.": (
        "CKP13",
        "the unfinished checkpoint checkpoint_966000.tmp-1676360415 was removed while it was written",
    ),
    "FileNotFoundError: Metadata file (named _METADATA) does not exist at gs://b/run/checkpoint_3/state.": (
        "CKP31",
        "orbax removed the checkpoint gs://b/run/checkpoint_3 as unfinished",
    ),
    "ValueError: Found incomplete checkpoint at gs://b/other/checkpoint_3.": (
        "CKP31",
        "the checkpoint gs://b/other/checkpoint_3 is unfinished",
    ),
    'ValueError: DATA_LOSS: Error opening "zarr" driver: Error reading "target.scale/.zarray" in OCDBT database at '
    "gs://b/run/checkpoint_3/state/: Error decoding gs://b/run/checkpoint_3/state/manifest.ocdbt: Error decoding": (
        "CKP27",
        "the checkpoint gs://b/run/checkpoint_3 is damaged",
    ),
    "ValueError: gs://b/run/checkpoint_3 is not a checkpoint: it has no folder 'state'. Steps in gs://b/run: [2, 3]": (
        "CKP31",
        "orbax removed the checkpoint gs://b/run/checkpoint_3, or its arrays",
    ),
    "FileNotFoundError: The specified path gs://b/run/checkpoint_3 was not found.": (
        "CKP04",
        "the checkpoint gs://b/run/checkpoint_3 is not there",
    ),
    'HTTP response code 404 with body \'{"message": "No such object: b/run/checkpoint_3/state/_METADATA"}\'': (
        "CKP32",
        "the checkpoint gs://b/run/checkpoint_3 was removed while a host restored it",
    ),
    "ValueError: NOT_FOUND: Error reading gs://b/run/checkpoint_2/state/_sharding": (
        "CKP32",
        "the checkpoint gs://b/run/checkpoint_2 was removed while a host restored it",
    ),
    'ValueError: NOT_FOUND: Error opening "zarr" driver: Error reading "target.scale/.zarray" in OCDBT database at '
    "gs://b/run/checkpoint_2/state/: Error reading Byte range [0, 549) of gs://b/run/checkpoint_2/state/d/8e [": (
        "CKP32",
        "the checkpoint gs://b/run/checkpoint_2 has no state/d/8e: it was removed while a host restored it, or copied "
        "without this file",
    ),
    "ValueError: The checkpoint has no state of the input pipeline: /m/checkpoint_2/dataset/train_ds-000-of-001 is": (
        "CKP16",
        "the checkpoint /m/checkpoint_2 has no position in the data for host 0 of 1",
    ),
    "google.auth.exceptions.RefreshError: ('invalid_grant: Invalid JWT: Token must be a short-lived token (60 minutes) "
    "and in a reasonable timeframe. Check your iat and exp values in the JWT claim.', {'error': 'invalid_grant'})": (
        "POD24",
        "Google refused the credentials of a host: they are of another time than Google's",
    ),
    "google.auth.exceptions.InvalidValue: Token used too early, 1700000000 < 1700000400. Check that your computer's": (
        "POD24",
        "the clock of a host is at 1700000000, before its credentials were issued at 1700000400, in seconds since 1970",
    ),
    "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate is not yet "
    "valid (_ssl.c:1006)": ("POD24", "a server's certificate is not yet valid by the clock of a host"),
    "botocore.exceptions.ClientError: An error occurred (RequestTimeTooSkewed) when calling the PutObject operation": (
        "POD24",
        "the storage refused a request of a host: its time differs too much",
    ),
    "\t when uploading gs://b/run/checkpoint_3/": (
        "CKP34",
        "a host could not make a folder of the checkpoint gs://b/run/checkpoint_3: the bucket refused it",
    ),
    "ERROR:absl:[process=0] _SignalingThread.run() raised an exception: [Errno 30] Read-only file system: "
    "'/data/m/checkpoint_3.orbax-checkpoint-tmp'": (
        "CKP34",
        "a host could not make a folder of the checkpoint /data/m/checkpoint_3: Read-only file system",
    ),
    "OSError: [Errno 28] No space left on device: '/data/m/x.tmp'": ("DSK01", "a host had no space left on a disk"),
    "OSError: [Errno 122] Disk quota exceeded": ("DSK01", "a host used up its quota of a disk"),
    "OSError: [Errno 30] Read-only file system: '/data/m'": ("DSK01", "a host wrote to a disk that is read-only"),
    "subprocess.CalledProcessError: Command '['gsutil', '-m', 'mv', 'gs://b/run/checkpoint_5.tmp-1666556700', "
    "'gs://b/run/checkpoint_5']' returned non-zero exit status 1.": (
        "CKP35",
        "a host could not give the checkpoint gs://b/run/checkpoint_5 its name: gsutil ended with status 1",
    ),
    "Resources are insufficient in region: us-central1. Please try a different region or use a different": (
        "VTX19",
        "no machine of the job's kind was free in us-central1",
    ),
    'ERROR: There is no more capacity in the zone "europe-west4-a"; you can try in another zone where Cloud TPU': (
        "VTX19",
        "no TPU of the kind was free in europe-west4-a",
    ),
    "tmp parameter does not exist": ("CKP13", "an unfinished checkpoint was removed while it was written"),
    "NotFoundError: Unsuccessful TensorSliceReader constructor: Failed to find any matching files for "
    "gs://b/run/checkpoint_5/train_ds-002-of-004": (
        "CKP16",
        "the checkpoint gs://b/run/checkpoint_5 has no position in the data for host 2 of 4",
    ),
    "Failed to find any matching files for gs://b/run/checkpoint_5/process_3-of-4/train_ds": (
        "CKP16",
        "the checkpoint gs://b/run/checkpoint_5 has no position in the data for host 3 of 4",
    ),
    "OSError: [Errno 116] Stale file handle: '/gcs/b/run/checkpoint_5/checkpoint'": (
        "GCS04",
        "a host read a file that was replaced meanwhile",
    ),
    "flax 0.12.4 requires optax==0.2.6, but you have optax 0.2.8 which is incompatible.": (
        "INS01",
        "flax 0.12.4 requires optax==0.2.6, and optax 0.2.8 is installed",
    ),
    "ERROR: ResolutionImpossible: for help visit": (
        "INS01",
        "pip found no set of versions that meets all requirements",
    ),
    "ERROR: No matching distribution found for flax (unavailable)": (
        "INS03",
        "pip cannot use flax as it is required, by the address of a git repository",
    ),
    "ERROR: No matching distribution found for jax==0.12.0": (
        "INS03",
        "the package index has no jax==0.12.0 for this Python and this machine",
    ),
    "INFO: This is taking longer than usual. You might need to provide the dependency resolver with stricter "
    "constraints to reduce runtime.": (
        "INS05",
        "pip tries one set of releases after another, and needs constraints",
    ),
    "INFO: pip is looking at multiple versions of seqio-nightly to determine which version is compatible with other": (
        "INS05",
        "pip tries one release of seqio-nightly after another",
    ),
    "ImportError: cannot import name 'linear_util' from 'jax' (/usr/lib/python3/dist-packages/jax/__init__.py)": (
        "INS06",
        "a package is older than JAX 0.4.24, which removed jax.linear_util",
    ),
    "ImportError: cannot import name 'linear_util' from 'jax.extend' (unknown location)": (
        "INS06",
        "jax is older than a package needs: it has no jax.extend.linear_util",
    ),
    "ModuleNotFoundError: No module named 'jax.experimental.gda_serialization'": (
        "INS06",
        "a package is older than the installed JAX, where jax.experimental.gda_serialization became "
        "array_serialization",
    ),
    "ModuleNotFoundError: No module named 'jax.experimental.maps'": (
        "INS06",
        "a package asks for jax.experimental.maps, which the installed JAX does not have",
    ),
    "ImportError: cannot import name 'PartitionSpec' from 'jax.experimental.pjit' (/usr/lib/pjit.py)": (
        "INS06",
        "a package asks for jax.experimental.pjit.PartitionSpec, which the installed JAX does not have",
    ),
    "AttributeError: module 'jax.monitoring' has no attribute 'record_scalar'": (
        "INS06",
        "a package asks for jax.monitoring.record_scalar, which the installed JAX does not have",
    ),
    "AttributeError: jax.tree_map was removed in JAX v0.4.26: use jax.tree.map": (
        "INS06",
        "a package asks for jax.tree_map, which JAX v0.4.26 removed",
    ),
    "RuntimeError: jaxlib version 0.9.0 is newer than and incompatible with jax version 0.8.1. Please update": (
        "INS06",
        "jaxlib 0.9.0 does not belong to jax 0.8.1",
    ),
    "RuntimeError: jaxlib is version 0.9.0, but this version of jax requires version >= 0.10.2.": (
        "INS06",
        "jaxlib 0.9.0 is older than jax needs: 0.10.2",
    ),
    "TypeError: register_with_handler() got an unexpected keyword argument 'for_restore'": (
        "INS07",
        "orbax-checkpoint is older than T5X needs: its register_with_handler does not take for_restore",
    ),
    "AttributeError: module 'orbax.checkpoint' has no attribute 'Checkpointer'": (
        "INS07",
        "a package asks for orbax.checkpoint.Checkpointer, which the installed orbax-checkpoint does not have",
    ),
    "ImportError: cannot import name 'type_handlers' from 'orbax.checkpoint' (/usr/lib/orbax/__init__.py)": (
        "INS07",
        "a package asks for orbax.checkpoint.type_handlers, which the installed orbax-checkpoint does not have",
    ),
    "AttributeError: module 'tensorstore' has no attribute 'ocdbt'": (
        "INS08",
        "tensorstore is too old: a package asks for its ocdbt",
    ),
    "ImportError: /usr/dist-packages/tensorflow_text/core/pybinds/tflite_registrar.so: undefined symbol: icudt77_dat": (
        "INS09",
        "tensorflow-text was built for another TensorFlow than the installed one: it lacks the symbol icudt77_dat",
    ),
    "XlaCallModuleOp with version 10 is not supported by this build. Must be <= 9": (
        "INS10",
        "tensorflow is too old: a model has programs of form 10, and it reads those up to 9",
    ),
    "Cannot deserialize computation": ("INS10", "tensorflow is too old for a model: it cannot read a program in it"),
    "error: failed to deserialize portable artifact using StableHLO_v1.9.1": (
        "INS10",
        "tensorflow is too old for a model: it cannot read a program of StableHLO_v1.9.1",
    ),
    "ModuleNotFoundError: No module named 'airio'": ("INS11", "a package needs airio, which is not installed"),
    "sed: can't read /usr/lib/python3/dist-packages/t5x/partitioning.py: No such file or directory": (
        "INS11",
        "t5x is not installed, so that its file cannot be edited: the installation before has failed",
    ),
    "A Google TPU may be present on this machine, but either a TPU-enabled jaxlib or libtpu is not installed. "
    "Falling back to cpu.": ("RUN11", "a host has a TPU, and JAX found no libtpu: it computes on the CPU"),
    "Unable to initialize backend 'tpu': INVALID_ARGUMENT: TpuPlatform is not available.": (
        "RUN11",
        "JAX found no TPU at a host, and took the CPU",
    ),
    "No GPU/TPU found, falling back to CPU. (Set TF_CPP_MIN_LOG_LEVEL=0 and rerun for more info.)": (
        "RUN11",
        "JAX found no TPU at a host, and took the CPU",
    ),
}
"""Texts that JAX, libtpu, T5X, Linux, Google's services, pip and imports print, each with its code and message."""


def only(lines: Iterable[str]) -> Symptom:
    (symptom,) = recognize(lines)
    return symptom


def known(texts: Sequence[str]) -> KnownError | None:
    return reword(texts)


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_log_names_the_host_and_what_it_died_of(name: str) -> None:
    code, host, message = RECORDED[name]
    with (LOGS / f"{name}.log").open("rb") as stream:
        first, *_ = recognize(text_lines(stream))
    assert (first.code, first.host, first.message) == (code, host, message)
    assert first.quoted in (LOGS / f"{name}.log").read_text() or first.quoted.endswith("…")


def test_every_recorded_log_is_read_and_has_no_path_of_a_machine() -> None:
    assert {path.stem for path in LOGS.glob("*.log")} == set(RECORDED)
    for path in LOGS.glob("*.log"):
        assert 'File "/' not in path.read_text()


@pytest.mark.parametrize("line", REPORTED)
def test_a_reported_text_is_recognized(line: str) -> None:
    symptom = only([f"{line}\n"])
    assert (symptom.code, symptom.message) == REPORTED[line]


def test_each_text_of_the_table_is_in_a_log_here() -> None:
    lines = [*REPORTED, *(line for path in LOGS.glob("*.log") for line in path.read_text().splitlines())]
    texts = [line.text for line in log_lines(lines)]
    for code in symptom_codes().values():
        for text in code.texts:
            if not text.is_exit:
                matching = [line for line in texts if text.pattern.search(line)]
                assert matching, f"{code.code}: {text.pattern.pattern}"
                assert all(text.has in line for line in matching), text.has


def test_the_table_is_complete() -> None:
    own_pages = {*rules_by_code(), *RUN_CODES, *AUXILIARY_CODES, *(c for group in NOT_CAUGHT.values() for c in group)}
    for code, about in symptom_codes().items():
        assert code in every_code()
        assert bool(about.title) != (code in own_pages), f"{code} has one title"
        for sentence in (about.title, about.cause, about.fix, *(text.message for text in about.texts)):
            assert not sentence.endswith(".")
        assert about.cause
        assert about.fix
    assert all(any(part in text for part in progress_parts()) for text in ("Training: step 5", "Saving checkpoint."))
    assert progress().search("I1115 16:00:39.451247 140671318562816 trainer.py:501] Training: step 198")


HEALTHY = """\
I1115 16:00:39.451247 140671318562816 train.py:201] Process ID: 0
I1115 16:00:40.451247 140671318562816 xla_bridge.py:889] Unable to initialize backend 'tpu': module has no attribute
I1115 16:00:41.451247 140671318562816 train.py:618] Compiling train loop.
I1115 16:00:42.451247 140671318562816 trainer.py:560] Training: step 10
W1115 16:00:43.451247 140671318562816 utils.py:10] no process was Killed, the exit status was 0, exit code: 0
I1115 16:00:44.451247 140671318562816 checkpoints.py:782] Saving checkpoint for step 10 to gs://b/checkpoint_10.tmp-5
I1115 16:00:45.451247 140671318562816 data.py:1] Attempting to read 137 files; status 137 files are left
I1115 16:00:46.451247 140671318562816 train.py:747] END Train loop.
I1115 16:00:47.451247 140671318562816 train.py:588] Finished.
""".splitlines(keepends=True)


def test_a_job_that_went_well_has_no_symptom() -> None:
    assert recognize(HEALTHY) == ()


KILLED = (LOGS / "host_1_killed.log").read_text().splitlines()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("[task 1] Out of memory: Killed process 12 (python3) total-vm:1kB", "POD20"),
        ("[task 1] *** SIGTERM received by PID 12 (TID 12)", "POD17"),
        ("[task 1] exit status -9", "POD12"),
        ("[task 1] XlaRuntimeError: Ran out of memory in memory space hbm. Used 2G of 1G hbm.", "AOT01"),
    ],
)
def test_a_cause_precedes_what_other_hosts_saw(line: str, code: str) -> None:
    first, *others = recognize([line, *KILLED])
    assert (first.code, first.host, first.line) == (code, 1, 1)
    assert [s.code for s in others] == ["POD12"] * (code != "POD12")


def test_a_cause_that_a_later_part_of_the_file_shows_is_named_first() -> None:
    """Logs of several hosts are often joined one after the other."""
    first, *_ = recognize([*KILLED, "[task 1] Out of memory: Killed process 12 (python3) total-vm:1kB"])
    assert (first.code, first.line) == ("POD20", len(KILLED) + 1)
    first, *_ = recognize([*KILLED, "[task 1] exit status -9"])
    assert (first.code, first.message) == ("POD12", "the process of host 1 was ended by SIGKILL (status -9)")


def test_hosts_that_are_ended_afterward_are_not_the_cause() -> None:
    found = recognize([*KILLED, "[task 0] exit status -9", "[task 0] *** SIGTERM received by PID 1 (TID 1)"])
    assert [(s.code, s.host) for s in found] == [("POD12", 1), ("POD12", 0), ("POD17", 0)]
    raised = ["[task 0] Traceback (most recent call last):", "[task 0] RuntimeError: cannot schedule new futures"]
    assert [s.code for s in recognize([*KILLED, *raised])] == ["POD12", "RUN01"]


def test_times_decide_where_every_line_has_one() -> None:
    lines = [
        "E1127 17:02:00.000000 1 agent.cc:1] Task 3 heartbeat timeout.",
        "W1127 17:01:00.000000 1 preemption_notifier.cc:90] SIGTERM caught at 2026-11-27T17:01:00+00:00",
    ]
    assert [s.code for s in recognize(lines)] == ["POD17", "POD12"]
    assert [s.code for s in recognize([lines[0], "SIGTERM caught at 12:00"])] == ["POD12", "POD17"]


def test_what_a_host_did_last_is_read_from_its_own_log() -> None:
    steps = [f"[task {host}] Training: step {step}" for step in (10, 20) for host in (0, 1)]
    first, *_ = recognize([*steps, "[task 0] Saving checkpoint.", *KILLED])
    assert (first.host, first.last) == (1, "host 1: Training: step 20")
    alone, *_ = recognize(["Training: step 20\n", "Task 1 heartbeat timeout."])
    assert (alone.host, alone.last) == (1, "this log: Training: step 20")


def test_a_host_that_went_on_did_not_die_of_it() -> None:
    on = [f"[task 1] Training: step {step}" for step in range(30)]
    read = read_log(["[task 1] *** SIGTERM received by PID 1", *on])
    assert read.symptoms == ()
    read = read_log(["[task 1] *** SIGTERM received by PID 1", *on, "[task 1] *** SIGTERM received by PID 2"])
    assert [s.line for s in read.symptoms] == [32]
    assert [s.line for s in read.survived] == [1]
    asked = read_log(["[task 1] *** SIGTERM received by PID 1", *on[:9], "[task 1] exit status -9"])
    assert [s.code for s in asked.symptoms] == ["POD17", "POD12"], "30 seconds pass between SIGTERM and SIGKILL"
    handled = ["Traceback (most recent call last):", "ModuleNotFoundError: No module named 'prefetch'", *on]
    assert recognize([line.removeprefix("[task 1] ") for line in handled], known) == ()


def test_a_run_that_went_well_did_not_die_of_anything() -> None:
    handled = ["Traceback (most recent call last):", "OSError: [Errno 116] Stale file handle: '/gcs/b/x'"]
    end = "I1115 16:00:47.451247 140671318562816 train.py:588] Finished."
    assert [s.code for s in recognize(handled)] == ["GCS04"]
    assert recognize([*handled, end]) == ()
    assert [s.code for s in recognize([*handled, end, "*** SIGSEGV (@0x10) received by PID 7"])] == ["POD21"]


T5X_TRACEBACK = """\
worker 2: Traceback (most recent call last):
worker 2:   File "/usr/lib/python3.11/site-packages/gin/config.py", line 1582, in gin_wrapper
worker 2:     return fn(*new_args, **new_kwargs)
worker 2: KeyError: 'x'
worker 0: Training: step 1
worker 2:
worker 2: During handling of the above exception, another exception occurred:
worker 2:
worker 2: Traceback (most recent call last):
worker 2:   File "/home/me/my_tasks.py", line 7, in <module>
worker 2:     task = seqio.get_mixture_or_task("my_taks")
worker 2:   File "/usr/lib/python3.11/site-packages/seqio/utils.py", line 12, in get
worker 2:     raise ValueError(name)
worker 2: ValueError: {}
worker 2:   In call to configurable 'train' (<function train at 0x7f>)
"""


def test_an_exception_that_a_stage_knows_has_its_code() -> None:
    text = T5X_TRACEBACK.format("No Task or Mixture found with name 'my_taks'. Available:")
    (symptom,) = recognize(text.splitlines(), known)
    assert (symptom.code, symptom.host, symptom.line) == ("SEQ04", 2, 14)
    assert symptom.message == "no task or mixture is called my_taks"
    assert symptom.fix == "import the module that registers it, or correct the name"


def test_an_unknown_exception_is_named_with_the_users_own_line() -> None:
    symptom = only(T5X_TRACEBACK.format("what is this").splitlines())
    assert symptom.code == "RUN01"
    assert symptom.message == "host 2 stopped with ValueError: what is this, raised at /home/me/my_tasks.py:7"
    before = recognize([*T5X_TRACEBACK.format("what is this").splitlines(), "worker 0: Task 2 heartbeat timeout."])
    assert [s.code for s in before] == ["RUN01", "POD12"]


def test_a_name_that_t5x_itself_does_not_define_is_a_mistake_of_t5x() -> None:
    text = "Traceback (most recent call last):\n  File \"{}\", line 7, in restore\nNameError: name 'x' is not defined"
    of_t5x, of_user = (
        only(text.format(file).splitlines()) for file in ("/opt/t5x/t5x/checkpoints.py", "/home/me/t5x/my_tasks.py")
    )
    assert of_t5x.fix.startswith("the mistake is in T5X's own code: use another commit of T5X")
    assert of_user.fix == ""


@pytest.mark.parametrize(
    ("prefix", "host", "writer"),
    [
        ("worker 3: ", 3, "host 3"),
        ("worker-3  | ", 3, "host 3"),
        ("[task 3] ", 3, "host 3"),
        ("(host 3): ", 3, "host 3"),
        ("[rank3]: ", 3, "host 3"),
        ("t1v-n-4f57df69-w-3: ", 3, "host 3"),
        ("workerpool1-2: ", None, "workerpool1-2"),
        ("[workerpool1-2] ", None, "workerpool1-2"),
        ("", None, ""),
    ],
)
def test_a_line_names_its_host(prefix: str, host: int | None, writer: str) -> None:
    symptom = only([f"{prefix}*** SIGTERM received by PID 12 (TID 12)"])
    assert (symptom.host, symptom.writer) == (host, writer)
    assert symptom.message == f"process 12 of {writer or 'a host'} received SIGTERM"


def test_entries_of_cloud_logging_are_read() -> None:
    def entry(labels: dict[str, str], time: str, **payload: object) -> str:
        return json.dumps({"resource": {"labels": labels}, "timestamp": f"2026-11-27T{time}Z", **payload})

    replica, worker = {"task_name": "workerpool1-2"}, {"worker_id": "3"}
    lines = [
        entry(replica, "17:02:00.5", textPayload="Traceback (most recent call last):\nMemoryError\n"),
        entry(worker, "17:01:00.5", jsonPayload={"message": "Training: step 7"}),
        entry(
            worker, "17:01:30.5", jsonPayload={"message": "*** SIGTERM received by PID 12 (TID 12)", "levelname": "E"}
        ),
        '{"not": "a log"}',
        "{broken",
        "[1, 2]",
    ]
    sigterm, memory = recognize(lines)
    assert (memory.code, memory.writer, memory.host, memory.line) == ("POD20", "workerpool1-2", None, 1)
    assert (sigterm.code, sigterm.host, sigterm.last, sigterm.time) == (
        "POD17",
        3,
        "host 3: Training: step 7",
        "1127 17:01:30.5",
    )


def test_a_replica_that_vertex_ai_names_has_its_own_log() -> None:
    def entry(replica: str, text: str) -> str:
        return json.dumps({"resource": {"labels": {"task_name": replica}}, "textPayload": text})

    ended = "The replica workerpool0-1 exited with a non-zero status of 137."
    symptom = only([entry("workerpool0-1", "Training: step 7"), entry("service", ended)])
    assert symptom.message == "the process of workerpool0-1 was ended by SIGKILL (status 137)"
    assert (symptom.writer, symptom.last) == ("", "workerpool0-1: Training: step 7")


def test_entries_that_are_laid_out_over_several_lines_are_read() -> None:
    """Without jq, ``gcloud logging read --format=json`` prints them so, the newest first."""

    def entry(worker: str, time: str, text: str) -> dict[str, object]:
        labels = {"labels": {"worker_id": worker}, "type": "tpu_worker"}
        return {"insertId": "x", "resource": labels, "textPayload": text, "timestamp": time}

    entries = [
        entry("3", "17:02", "Traceback (most recent call last):\nMemoryError: no\n"),
        {"insertId": "y", "textPayload": "*** SIGTERM received by PID 7"},
    ]
    memory, sigterm = recognize(f"{json.dumps(entries, indent=2)}\n".splitlines(keepends=True))
    assert (memory.code, memory.host, memory.line) == ("POD20", 3, 10)
    assert (sigterm.code, sigterm.host) == ("POD17", None)


def test_of_entries_with_the_newest_first_the_newest_is_the_last() -> None:
    def entry(second: int, text: str) -> str:
        return json.dumps({"timestamp": f"2026-11-27T17:02:{second:02}Z", "textPayload": text})

    steps = [entry(second, f"Training: step {second}") for second in range(20, 1, -1)]
    (symptom,) = recognize([entry(30, "*** SIGTERM received by PID 7"), *steps])
    assert symptom.line == 1
    assert read_log([*steps, entry(5, "*** SIGTERM received by PID 7")]).symptoms != ()
    assert recognize([*steps, entry(30, "Task 3 heartbeat timeout.")])[0].last == "this log: Training: step 20"


def test_a_log_of_one_host_may_say_which_one_it_is() -> None:
    own = "I1115 16:00:39.451247 1 train.py:201] Process ID: 2"
    symptom = only([own, "Training: step 5", "*** SIGTERM received by PID 7"])
    assert (symptom.host, symptom.message) == (2, "process 7 of host 2 received SIGTERM")
    both = only([own, own.replace("ID: 2", "ID: 3"), "*** SIGTERM received by PID 7"])
    assert both.host is None
    pool = only([f"workerpool0-0: {own}", "workerpool0-0: *** SIGTERM received by PID 7"])
    assert (pool.host, pool.message) == (2, "process 7 of workerpool0-0 received SIGTERM")


def test_bytes_that_are_not_text_colors_and_bars_of_progress_do_no_harm(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    bar = b"".join(b"\r%3d%% |###|" % percent for percent in range(100))
    log.write_bytes(
        b"\xff\xfe\x00 noise \x80\r\n"
        + bar
        + b"\r\x1b[31m\x1b[1m[task 3] Task 5 heartbeat timeout.\x1b[0m\r\n"
        + b"\xc3"
    )
    with log.open("rb") as stream:
        symptom = only(text_lines(stream))
    assert (symptom.code, symptom.host, symptom.writer, symptom.line) == ("POD12", 5, "host 3", 2)
    assert symptom.quoted == "Task 5 heartbeat timeout."


def test_secrets_are_not_quoted() -> None:
    token = "hf_" + "a1B2c3D4" * 4
    symptom = only([f"Task 5 heartbeat timeout. HF_TOKEN={token}"])
    assert token not in symptom.quoted
    error = only(["Traceback (most recent call last):", f"ValueError: {token}"])
    assert token not in f"{error.quoted}{error.message}"
    assert token not in "".join(read_log([f"the token is {token}"]).tail)


def test_a_long_log_takes_no_memory(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    with log.open("w") as stream:
        for step in range(20_000):
            stream.write(f"[task {step % 8}] Training: step {step}\n[task {step % 8}] Task 3 heartbeat timeout.\n")
        stream.write("x" * 8_000_000)
    tracemalloc.start()
    with log.open("rb") as stream:
        read = read_log(text_lines(stream))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert read.symptoms[0].code == "POD12"
    assert peak < 12_000_000, "the longest line that is read at once is a megabyte"
