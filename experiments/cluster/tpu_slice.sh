#!/usr/bin/env bash
# TPU slice of several hosts, one process a host; JAX finds the others itself:
#   experiments/cluster/tpu_slice.sh NAME ZONE /mnt/runs/gigpo
# The slice is there already (gcloud compute tpus tpu-vm create NAME --zone=ZONE
# --accelerator-type=v5litepod-16 --version=v2-alpha-tpuv5-lite), with this
# repository in ~/agentrl_jax and one disk in /mnt/runs on each host, see
# docs/cluster.md. The same command goes on after a failure.
set -euo pipefail
name=$1 zone=$2 runs=$3

gcloud compute tpus tpu-vm ssh "$name" --zone="$zone" --worker=all --command="
  cd ~/agentrl_jax && AGENTRL_EXTRAS=tpu tools/run experiments/launch.py \
    --config=configs/gigpo.py \
    --workdir=$runs \
    --config.distributed.coordinator=auto \
    --config.mesh.fsdp=-1 --config.train.rows=16 --config.sft.rows=16"
