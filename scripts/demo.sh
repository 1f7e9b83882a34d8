#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Plans a real example, an LSTM with 512 hidden units, batch 64, 10 000 steps, single precision, on a laptop; then runs one.
set -euo pipefail
ebb=build/release/ebb

# State: h and c, 2 x 64 x 512 floats. Tape: four gates and the states before and after, 8 x 64 x 512 floats.
lstm=(--steps 10000 --state 256KiB --tape 1MiB --forward 0.003 --backward 0.006)
ssd=ssd:capacity=4GiB,write=1GB/s,read=2GB/s,latency=0.0001

show() {
  printf '\n%s\n$ ebb' "$1"
  shift
  printf ' %s' "$@"
  printf '\n'
  "$ebb" "$@"
}

show 'An LSTM, 512 hidden units, batch 64, 10 000 steps. Plain BPTT keeps every tape:' \
  plan "${lstm[@]}" --strategy store_all --budget unlimited
show 'In 256 MiB:' \
  plan "${lstm[@]}" --strategy auto --budget 256MiB
show 'In 256 MiB and 4 GiB of an SSD:' \
  plan "${lstm[@]}" --strategy auto --budget 256MiB --tier "$ssd"
show 'What each budget costs:' \
  plan "${lstm[@]}" --strategy auto --sweep
show 'A short chain, drawn:' \
  plan --steps 12 --strategy revolve --slots 3
show 'Now for real: a nonlinear heat equation and its adjoint, each strategy on this machine:' \
  bench async --quick
