#!/bin/bash
# Pretrains on a v3-32. Needs the bucket, and T5X cloned beside this folder.
PROJECT_DIR=${PROJECT_DIR:-$(dirname "$0")}
MODEL_DIR="gs://nordlys-lm/models/nordlys_base"

export PYTHONPATH=${PROJECT_DIR}

python3 -m t5x.main \
  --run_mode=train \
  --gin_search_paths=${PROJECT_DIR} \
  --gin_file=nordlys_base.gin \
  --gin.MODEL_DIR="'${MODEL_DIR}'" \
  --tfds_data_dir="gs://nordlys-lm/tfds"
