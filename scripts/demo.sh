#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains an LSTM on this project's own documents, letter by letter, in a budget that plain BPTT cannot meet.
set -euo pipefail
ebb=build/release/ebb
text=build/demo/text.txt
mkdir -p build/demo
cat README.md CONTRIBUTING.md docs/*.md >"$text"

show() {
  printf '\n%s\n$ ebb' "$1"
  shift
  printf ' %s' "$@"
  printf '\n'
  "$ebb" "$@"
}

lstm=(--task text --data "$text" --cell lstm --hidden 128 --steps 500 --batch 16 --lr 1e-2 --clip 1 --forget-bias 1)

show 'What an LSTM, 512 hidden units, batch 64, 10 000 steps, would need on a laptop with 256 MiB for it and an SSD:' \
  plan --steps 10000 --state 256KiB --tape 1MiB --forward 0.003 --backward 0.006 --budget 256MiB \
  --tier ssd:capacity=4GiB,write=1GB/s,read=2GB/s,latency=0.0001
show 'Now for real. An LSTM learns the letters of this project'"'"'s documents, 500 at a time. Plain BPTT does not fit into 2 MiB:' \
  train "${lstm[@]}" --budget 2MiB --strategy store_all --iterations 1 || [ $? = 3 ]
show 'ebb does, with the same gradients:' \
  train "${lstm[@]}" --budget 2MiB --iterations 150 --evaluate 50 --test-samples 16 --out build/demo/run
