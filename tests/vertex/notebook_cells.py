# A notebook's cells in order: train, look at the run, then evaluate and infer, each as a job that runs a T5X image,
# with helpers that copy the gin file to the bucket, follow the job, and record it in an experiment.
# %%
import json
import os
import time

import gcsfs
import google.auth
import google.auth.transport.requests
import pandas as pd
from google.cloud import aiplatform

credentials, project = google.auth.default()
credentials.refresh(google.auth.transport.requests.Request())
assert credentials.valid

REGION, BUCKET, EXPERIMENT = "us-central1", "my-team-bucket", "translation"
IMAGE = f"gcr.io/{project}/t5x-base"
RUNS = f"gs://{BUCKET}/experiments/{EXPERIMENT}/runs"
DATA = f"gs://{BUCKET}/datasets"


# %%
def make_job(name, mode, gin_file, model_dir, overrides):
    """Returns the job for a run mode; inference starts the script that images have in their checkout."""
    copy = f"{model_dir}/{os.path.basename(gin_file)}"
    gcsfs.GCSFileSystem().put(gin_file, copy)
    flags = [
        f'--gin.MODEL_DIR="{model_dir}"',
        f"--tfds_data_dir={DATA}",
        f"--gin_file={copy.replace('gs://', '/gcs/')}",
    ]
    container = {"image_uri": IMAGE, "args": [*flags, *(f"--gin.{override}" for override in overrides)]}
    if mode == "infer":
        container["command"] = ["python", "./t5x/t5x/infer.py"]
    else:
        container["args"].insert(0, f"--run_mode={mode}")
    machine = {"machine_type": "cloud-tpu", "accelerator_type": "TPU_V2", "accelerator_count": 8}
    pool = {"machine_spec": machine, "replica_count": 1, "container_spec": container}
    return aiplatform.CustomJob(display_name=name, worker_pool_specs=[pool])


def start(job, name, folder, written=()):
    """Sends a job, waits for its first files, and records it as a run with its data, its files and its model."""
    assert name not in [run.name for run in aiplatform.ExperimentRun.list(experiment=EXPERIMENT)]
    job.run(sync=False)
    job.wait_for_resource_creation()
    files = gcsfs.GCSFileSystem()
    while job.state.name in ("JOB_STATE_PENDING", "JOB_STATE_QUEUED"):
        time.sleep(0.1)
    while not all(files.exists(f"{folder}/{file}") for file in written) and job.state.name != "JOB_STATE_FAILED":
        time.sleep(0.1)
        files.invalidate_cache()
    aiplatform.start_run(name)
    create = aiplatform.Artifact.create
    data = create(schema_title="system.Dataset", display_name="data", uri=DATA)
    about = [create(schema_title="system.Artifact", display_name=file, uri=f"{folder}/{file}") for file in written]
    model = create(schema_title="system.Model", display_name="trained_model", uri=folder)
    with aiplatform.start_execution(
        schema_title="system.CustomJobExecution", display_name=name, metadata={"job": job.resource_name}
    ) as execution:
        execution.assign_input_artifacts([data, *about])
        execution.assign_output_artifacts([model])
        aiplatform.log_params({"lineage": execution.get_output_artifacts()[0].lineage_console_uri})
    aiplatform.end_run()


def runs():
    """Returns the runs of the experiment with their models' folders."""
    rows = []
    for name in [run.name for run in aiplatform.ExperimentRun.list(experiment=EXPERIMENT)]:
        artifacts = aiplatform.ExperimentRun(experiment=EXPERIMENT, run_name=name).get_artifacts()
        rows += [{"run": name, "folder": each.uri} for each in artifacts if each.display_name == "trained_model"]
    return pd.DataFrame(rows)


def state(job):
    """Returns the state in which a job ended; the SDK's own wait only looks every five seconds."""
    while job.state.name in ("JOB_STATE_PENDING", "JOB_STATE_QUEUED", "JOB_STATE_RUNNING"):
        time.sleep(0.1)
    return job.state.name


# %%
aiplatform.init(
    project=project,
    location=REGION,
    credentials=credentials,
    staging_bucket=f"gs://{BUCKET}/experiments/{EXPERIMENT}",
    experiment=EXPERIMENT,
)

# %%
train = make_job("train-1", "train", "configs/finetune.gin", f"{RUNS}/train-1", ["USE_CACHED_TASKS=False"])
start(train, "train-1", f"{RUNS}/train-1", ("config.gin", "model-info.txt"))
trained = state(train)

# %%
folder = runs().set_index("run").folder["train-1"]
checkpoint = f"{folder}/checkpoint_1002"
gcsfs.GCSFileSystem.clear_instance_cache()
assert gcsfs.GCSFileSystem().exists(checkpoint)

# %%
options = ["USE_CACHED_TASKS=False", f'CHECKPOINT_PATH="{checkpoint}"']
evaluate = make_job("eval-1", "eval", "configs/eval.gin", checkpoint, [*options, f'EVAL_OUTPUT_DIR="{RUNS}/eval-1"'])
start(evaluate, "eval-1", f"{RUNS}/eval-1")
infer = make_job("infer-1", "infer", "configs/infer.gin", checkpoint, [*options, f'INFER_OUTPUT_DIR="{RUNS}/infer-1"'])
start(infer, "infer-1", f"{RUNS}/infer-1")
states = {"train": trained, "eval": state(evaluate), "infer": state(infer)}

# %%
with aiplatform.start_run("eval-1", resume=True) as run:
    run.log_metrics({"examples": 40})

# %%
with open("found.json", "w") as file:
    json.dump({"states": states, "runs": sorted(runs().run), "metrics": run.get_metrics()}, file)
