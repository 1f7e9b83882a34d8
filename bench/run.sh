# SPDX-License-Identifier: Apache-2.0
# `./dev bench run [--save FILE] [run_bench's options]`: what running a plan costs. Markdown; FILE gets it too.
need fio
save=/dev/null
if [ "${1-}" = --save ]; then
  save=$2
  shift 2
fi
cpu=$(lscpu | sed -n 's/^Model name: *//p' | head -1)
{
  printf '# Results: running plans\n\n'
  printf '`./dev bench run%s` on %s: %s cores %s (%s).\n\n' "${*:+ $*}" "$(date +%F)" "$(nproc)" "$cpu" "$(uname -m)"
  build/release/bench/run_bench "$@"
} | tee "$save"
