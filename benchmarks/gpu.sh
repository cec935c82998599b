#!/usr/bin/env bash
# Measures training on a machine with a GPU; a line of JSON for each row, and the last one holds all.
# A model of 0.5 to 1.5 billion parameters is built from its configuration (random weights) and learns
# by each recipe in bfloat16, with all weights and with LoRA: tokens per second, peak memory, and the
# share of the GPU's measured matrix-multiply peak that the model's arithmetic reaches.
# A row that runs out of memory or disk says so and the others go on.
#   [PYTHON=python3] benchmarks/gpu.sh [--parameters 0.5|1.5] [--recipes sft dpo …] [--quick]
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-.venv/bin/python}
if ! command -v "$PYTHON" >/dev/null; then
    scripts/setup
fi
if ! "$PYTHON" -c 'import sys, torch; sys.exit(not (torch.cuda.is_available() and torch.cuda.is_bf16_supported()))'; then
    echo "gpu.sh: no GPU with bfloat16 that PyTorch can use here (torch.cuda.is_available() is false);" >&2
    echo "gpu.sh: run it on a machine that has one and its driver, or see \`make bench-training\` for a CPU." >&2
    exit 2
fi
exec "$PYTHON" -m benchmarks.accelerator "$@"
