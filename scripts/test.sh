# SPDX-License-Identifier: Apache-2.0
# For ./dev test: runs every stage, counts what ctest and pytest report, ends with one line of totals.

passed=0
failed=0
left_out=()

# stage NAME COMMAND…: a failed stage does not stop the others. A stage without tests of its own counts as one.
stage() {
  local name=$1 log="build/log/$1.txt" start=$SECONDS status lost total
  shift
  say "$name"
  set +e
  (set -e; "$@") 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  set -e
  read -r lost total < <(
    sed -nE 's/.* ([0-9]+) tests failed out of ([0-9]+)$/\1 \2/p
             s/^=* ?([0-9]+) failed, ([0-9]+) passed.*/\1 \2 pytest/p
             s/^=* ?([0-9]+) passed.*/0 \1/p' "$log" |
      awk '{ lost = $1; total = $2 + ($3 == "pytest" ? $1 : 0) } END { if (NR) print lost, total; else print 0, 1 }')
  [ "$status" = 0 ] || [ "$lost" != 0 ] || lost=1
  passed=$((passed + total - lost))
  failed=$((failed + lost))
  say "$name: $([ "$lost" = 0 ] && echo good || echo FAILED) ($((SECONDS - start)) s)"
}

leave_out() { say "$1: left out, $2"; left_out+=("$1 ($2)"); }

preset() {
  compile "$@"
  ctest --preset "$1"
}

# asan PRESET: asan-memory for the rooms that handle raw memory, asan for all.
asan() {
  cmake --preset asan
  cmake --build --preset "$1"
  ctest --preset "$1"
}

# No device code is tested without a GPU, so it is only compiled here.
cuda_compiles() {
  cmake --preset cuda
  [ -z "$(find ebb -name '*.cu' -print -quit)" ] || cmake --build --preset cuda --target ebb
}

run_tests() {
  need "${test_packages[@]}"
  need_fuzzing_clang
  need_lint
  mkdir -p build/log

  stage format check_format
  stage dev preset dev
  stage asan asan asan-memory
  stage tsan preset tsan
  stage fuzz preset fuzz "-DCMAKE_CXX_COMPILER=$(fuzzing_clang)"
  if command -v nvcc >/dev/null; then
    stage cuda cuda_compiles
  else
    leave_out cuda "no nvcc here"
  fi
  if [ -d tests/python ]; then
    stage package need_package
    stage python .venv/bin/python -m pytest -q -n "$jobs" --dist loadfile tests/python
  fi

  [ ${#left_out[@]} = 0 ] || say "left out: ${left_out[*]}"
  printf '%d passed, %d failed\n' "$passed" "$failed"
  [ "$failed" = 0 ]
}
