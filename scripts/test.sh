# SPDX-License-Identifier: Apache-2.0
# For ./dev test and ./dev test all: runs stages, counts their cases, says how long each took, ends with one line of totals.

passed=0
failed=0
skipped=0
record=false
stages=()
left_out=()
recorded=scripts/stage_seconds.txt
slowness=100  # per cent: of the stage so far that took longest beside its recorded time

# Seconds that a stage takes on 2 cores; nothing where they are not known.
recorded_seconds() { awk -v name="$1" '$1 == name { print $2 }' "$recorded"; }

# Where EBB_TEST_UNTIL names a time (in seconds since 1970), whether a stage would end after it on this machine, as it is today.
ends_too_late() {
  local needs
  [ -n "${EBB_TEST_UNTIL-}" ] || return 1
  needs=$(($(recorded_seconds "$1" | grep . || echo 60) * slowness / 100))
  [ "$(($(date +%s) + needs))" -gt "$EBB_TEST_UNTIL" ] || return 1
  left_out+=("$1, which would take some $((needs / 60 + 1)) min on this machine today; $(((EBB_TEST_UNTIL - $(date +%s)) / 60)) are left")
  say "${left_out[-1]}"
}

# stage NAME COMMAND…: a failed stage does not stop the others. It counts the cases in the JUnit files that the command leaves in
# $results, or as one where there are none.
stage() {
  local name=$1 log="build/log/$1.txt" start=$SECONDS status good lost idle before
  shift
  ! ends_too_late "$name" || return 0
  say "$name"
  export results=$PWD/build/log/$name.results
  rm -rf "$results"
  mkdir -p "$results"
  set +e
  (set -e; "$@") 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  set -e
  read -r good lost idle < <(python3 scripts/count.py "$results")
  if [ "$((good + lost + idle))" = 0 ]; then good=$((status == 0)); fi
  [ "$status" = 0 ] || [ "$lost" != 0 ] || lost=1
  passed=$((passed + good))
  failed=$((failed + lost))
  skipped=$((skipped + idle))
  stages+=("$name $((SECONDS - start)) $good $lost $idle")
  before=$(recorded_seconds "$name")
  if [ "${before:-0}" -ge 30 ] && [ $(((SECONDS - start) * 100 / before)) -gt "$slowness" ]; then
    slowness=$(((SECONDS - start) * 100 / before))
  fi
  say "$name: $([ "$lost" = 0 ] && echo good || echo FAILED), $good passed, $lost failed, $idle skipped ($((SECONDS - start)) s)"
}


# The table at the end. Times are compared with those of a 2-core machine; a warning, since machines differ.
report_stages() {
  local name seconds good lost idle before
  printf '\n%-14s %7s %7s %7s %7s\n' stage seconds passed failed skipped
  while read -r name seconds good lost idle; do
    printf '%-14s %7d %7d %7d %7d' "$name" "$seconds" "$good" "$lost" "$idle"
    before=$(recorded_seconds "$name")
    if [ -n "$before" ] && [ "$seconds" -gt $((before * 3 / 2)) ] && [ "$seconds" -gt $((before + 15)) ]; then
      printf '   grew by half or more: %d s recorded' "$before"
    fi
    printf '\n'
  done < <(printf '%s\n' "${stages[@]}")
  printf '\n'
  for name in "${left_out[@]}"; do printf 'left out: %s\n' "$name"; done
}

# Writes this run's times beside those of the stages that did not run.
record_stages() {
  { printf '%s\n' "${stages[@]}"; cat "$recorded"; } | awk '$1 == "#" { print; next } !seen[$1]++ { print $1, $2 }' |
    sort >"$recorded.new"
  mv "$recorded.new" "$recorded"
}

summary() {
  report_stages
  ! $record || record_stages
  printf '%d passed, %d failed' "$passed" "$failed"
  [ "$skipped" = 0 ] || printf ', %d skipped' "$skipped"
  printf '\n'
  [ "$failed" = 0 ]
}

# run_ctest PRESET [OPTION…]
run_ctest() {
  ctest --preset "$@" --output-junit "$results/ctest.xml" --test-output-size-passed 10000000
}

run_pytest() {
  EBB_RESULTS=$results .venv/bin/python -m pytest -q -n "$jobs" -p no:cacheprovider --junit-xml "$results/pytest.xml" "$@"
}

sanitized() {
  cmake --preset "$1"
  cmake --build --preset "$2"
  run_ctest "$2"
}

fuzzed() {
  cmake --preset fuzz "-DCMAKE_CXX_COMPILER=$(fuzzing_clang)"
  cmake --build --preset fuzz
  run_ctest fuzz
}

# Benches, examples and every public header by itself: what ./dev test does not compile.
build_rest() {
  configure_dev
  cmake --build --preset dev -- -k 0
}

# works_alone FOLDER KIND: the wheel in FOLDER, in a fresh environment that sees nothing of this checkout but the packages it uses.
works_alone() {
  local fresh=build/$2-venv
  rm -rf "$fresh"
  .venv/bin/python -m venv "$fresh"
  "$fresh/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index "$1"/*.whl
  (cd "$fresh" && PYTHONPATH=$(../../.venv/bin/python -c 'import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))') \
    ./bin/python ../../scripts/wheel_smoke.py "$2")
}

# The wheel as an index gets it. No device code is tested without a GPU; here it is compiled, and so is the program that runs it under
# a sanitizer.
wheel_works() {
  wheel
  works_alone build/wheel index
  cmake --build build/python-wheel --target gated_program spiking_program training_program
}

# The sources as an index gets them: no file is missing or too many, and they make a wheel, without CUDA.
sdist_works() {
  sdist
  diff <(tar -tzf build/sdist/*.tar.gz | cut -d / -f 2- | grep -vx PKG-INFO | sort) \
    <(git ls-files -co --exclude-standard {CHANGELOG,README}.md CMakeLists.txt LICENSE NOTICE pyproject.toml cmake ebb python | sort)
  tar -xzf build/sdist/*.tar.gz -C build/sdist
  plain_wheel build/sdist/ebb-*/ build/sdist-wheel EBB_EXPLORER=OFF
  works_alone build/sdist-wheel sources
}

# Conan's recipe as a user has it, in a cache of its own.
conan_works() {
  local conan=$PWD/.venv/bin/conan
  export CONAN_HOME=$PWD/build/conan
  "$conan" profile detect --force
  "$conan" create . --test-folder tests/conan -c tools.cmake.cmake_layout:test_folder="$PWD/build/conan/test"
}

# The Debian package as a user gets it: installed, run, linked against, and removed without a trace.
deb_works() {
  local folder=build/package left
  deb
  as_root dpkg -i "$folder"/*.deb
  dpkg -L ebb | while read -r path; do [ -d "$path" ] || echo "$path"; done >"$folder/files"
  (cd / && /usr/bin/ebb plan --steps 100 --budget 20 --json >/dev/null)
  gzip -cdf /usr/share/man/man1/ebb-plan.1* | grep -q 'Number of steps'
  bash -c 'source /usr/share/bash-completion/completions/ebb && complete -p ebb' >/dev/null
  # shellcheck disable=SC2046
  g++ -std=c++20 tests/consumer/main.cpp -o "$folder/consumer" $(pkg-config --cflags --libs ebb-train)
  "$folder/consumer"
  as_root dpkg -P ebb
  left=$(while read -r path; do [ ! -e "$path" ] || echo "$path"; done <"$folder/files")
  [ -z "$left" ] || { say "left behind: $left"; return 1; }
}

quick_tests() {
  unset EBB_TEST_UNTIL
  need_tests
  say "packages are here; from now on it counts"
  stage format check_format
  stage build build_quick
  stage types check_types
  stage cpp run_ctest quick
  stage python run_pytest --dist load -m "not slow" --ignore tests/python/test_view_page.py \
    --ignore tests/python/test_explorer.py tests/python
  left_out+=(
    "C++: suites labelled slow, the full number of cases of long tests, examples, consumer: ./dev test all"
    "Python: $(cat build/log/python.results/left_out 2>/dev/null || echo no) slow cases, the full number of random examples: ./dev test all"
    "pages in a browser, the book: ./dev test all"
    "sanitizers, fuzzing, clang-tidy, packages, public headers one by one, extensions: ./dev test all")
  summary
}

# Random examples in their full number, of slow tests and of those that ran before with few.
slow_python() {
  export EBB_EXAMPLES=all
  run_pytest --dist loadfile -m "slow or hypothesis" --ignore tests/python/test_libtorch.py \
    --ignore tests/python/test_train_memory.py --ignore tests/python/test_view_page.py \
    --ignore tests/python/test_explorer.py tests/python
}

# Pages of the program as users have it, with the planner in them.
explorer_works() {
  build_package -DEBB_EXPLORER=ON
  EBB_BINARY=$PWD/build/package/ebb run_pytest tests/python/test_explorer.py
}

# What is resident, of the program as users have it.
memory_as_stated() {
  build_package
  EBB_BINARY=$PWD/build/package/ebb run_pytest --dist loadfile tests/python/test_train_memory.py
}

# What quick_tests leaves out.
all_tests() {
  need_tests
  need_fuzzing_clang
  need_nvcc
  need_browser
  need "${explorer_packages[@]}"
  need_book
  need_figures
  need_conan
  need_packaging
  ! command -v dpkg >/dev/null || need "${deb_packages[@]}"
  say "packages are here; from now on it counts"
  stage build_rest build_rest
  stage cpp_slow run_ctest slow
  stage python_slow slow_python
  stage memory memory_as_stated
  stage browser run_pytest tests/python/test_view_page.py
  stage explorer explorer_works
  stage book book
  stage libtorch run_pytest --dist loadfile tests/python/test_libtorch.py
  stage asan sanitized asan asan-memory
  stage tsan sanitized tsan tsan
  stage fuzz fuzzed
  stage tidy check_tidy_of_changes
  stage wheel wheel_works
  stage sdist sdist_works
  ! command -v dpkg >/dev/null || stage deb deb_works
  stage conan conan_works
  [ ! -e tests/extensions/run.py ] || stage extensions python3 tests/extensions/run.py
  summary
}

run_tests() {
  local what=quick
  while [ $# -gt 0 ]; do
    case $1 in
      all) what=all ;;
      --record) record=true ;;
      *) die "./dev test takes 'all' and '--record', not '$1'" ;;
    esac
    shift
  done
  mkdir -p build/log
  "${what}_tests"
}
