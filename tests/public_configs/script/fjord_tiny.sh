#!/bin/bash
# Pretrains on the machine that it is started on, from the folder of the project.
PROJECT_DIR=${PROJECT_DIR:-$PWD}
MODEL_DIR="gs://fjord-lm/models/fjord_tiny"
GIN_FILE="fjord_tiny.gin"

export PYTHONPATH=${PROJECT_DIR}

python3 -m t5x.train \
  --gin_search_paths=${PROJECT_DIR} \
  --gin_file=${GIN_FILE} \
  --gin.MODEL_DIR="'${MODEL_DIR}'"
