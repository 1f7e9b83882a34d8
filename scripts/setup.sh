# SPDX-License-Identifier: Apache-2.0
# For ./dev: installs what a machine lacks. Every Debian and Ubuntu package ebb uses is in `probe`.

say() { printf '== %s\n' "$*" >&2; }
die() { printf './dev: %s\n' "$*" >&2; exit 1; }

has_header() {
  printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" | g++ -std=c++20 -fsyntax-only -x c++ -
}

# How to see that a package is not needed: it, or the same from elsewhere, is there.
declare -A probe=(
  [g++]='command -v g++'
  [cmake]='command -v cmake'
  [ninja-build]='command -v ninja'
  [nlohmann-json3-dev]='has_header nlohmann/json.hpp'
  [libcli11-dev]='has_header CLI/CLI.hpp'
  [liburing-dev]='has_header liburing.h'
  [libzstd-dev]='has_header zstd.h'
  [liblz4-dev]='has_header lz4.h'
  [libhwy-dev]='has_header hwy/highway.h'
  [zlib1g-dev]='has_header zlib.h'
  [ccache]='command -v ccache'
  [fio]='command -v fio'
  [libgtest-dev]='has_header gtest/gtest.h'
  [libgmock-dev]='has_header gmock/gmock.h'
  [libopenmpi-dev]='command -v mpicxx'
  [openmpi-bin]='command -v mpirun'
  [dpkg-dev]='command -v dpkg-shlibdeps'
  [pkg-config]='command -v pkg-config'
  [file]='command -v file'
  [doxygen]='command -v doxygen'
  [emscripten]='command -v em++'
  [python3]='python3 -c "import tomllib"'
  [python3-venv]='python3 -c "import ensurepip"'
  [python3-dev]='python3 -c "import os, sysconfig; os.stat(sysconfig.get_path(\"include\") + \"/Python.h\")"'
)
build_packages=(g++ cmake ninja-build nlohmann-json3-dev libcli11-dev liburing-dev libzstd-dev liblz4-dev zlib1g-dev libhwy-dev)
test_packages=("${build_packages[@]}" libgtest-dev libgmock-dev python3 libopenmpi-dev openmpi-bin ccache)
explorer_packages=("${build_packages[@]}" emscripten)
deb_packages=("${build_packages[@]}" dpkg-dev file pkg-config python3)

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

install() {
  command -v apt-get >/dev/null || die "missing: $*. Install them with your system's package manager, then run ./dev again"
  [ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
    die "missing: $*. As root: apt-get install $*"
  say "installing $*"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

missing() {
  local package
  for package in "$@"; do
    eval "${probe[$package]}" >/dev/null 2>&1 || printf '%s\n' "$package"
  done
}

need() {
  local lack
  mapfile -t lack < <(missing "$@")
  [ ${#lack[@]} -gt 0 ] || return 0
  install "${lack[@]}"
  mapfile -t lack < <(missing "${lack[@]}")
  [ ${#lack[@]} = 0 ] || die "still missing or too old after installing: ${lack[*]}"
}

# A compiler cache makes the second run of ./dev test one of minutes; the first one installs it.
use_compiler_cache() {
  command -v ccache >/dev/null || return 0
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
  # One cache for all checkouts, and for precompiled headers.
  export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
}

# What ./dev test and ./dev test all use of the system and of Python.
need_tests() {
  need "${test_packages[@]}"
  use_compiler_cache
  need_lint
  need_python
  need_no_installed_package
  export PYTHONPATH=$PWD/build/dev/python${PYTHONPATH:+:$PYTHONPATH}
}

# Puts the packages of a requirements file into .venv, again only when the file has changed.
need_venv() {
  local stamp
  need python3 python3-venv
  [ -x .venv/bin/python ] || { say "creating .venv"; python3 -m venv .venv; }
  stamp=".venv/$(basename "$1")"
  cmp -s "$1" "$stamp" && return
  say "installing $1 into .venv"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --use-pep517 -r "$1" >&2
  cp "$1" "$stamp"
}

need_lint() { need_venv scripts/requirements-lint.txt; }

# pyrevolve has no wheels: it is compiled, and its build needs a newer setuptools than Debian's (--use-pep517).
need_python() {
  need g++ python3 python3-dev
  need_venv scripts/requirements.txt
}

# The browser that draws pages in tests. Elsewhere than on Debian it may be no package that works everywhere: those tests are skipped then.
need_browser() {
  need_venv scripts/requirements-browser.txt
  command -v chromium >/dev/null && return
  if ! grep -qx 'ID=debian' /etc/os-release; then
    say "no chromium here: tests of pages are skipped. EBB_CHROMIUM names another browser of its kind"
    return 0
  fi
  install chromium
}

# What ./dev book needs: nothing of the library is built for it.
need_book() {
  need doxygen
  need_venv scripts/requirements-book.txt
}

need_packaging() { need_venv scripts/requirements-packaging.txt; }

# What draws the figures of the papers' experiments.
need_figures() { need_venv scripts/requirements-figures.txt; }

need_conan() { need_venv scripts/requirements-conan.txt; }

# A compiler of CUDA 13: the system's, or else NVIDIA's packages, in a folder of their own since PyTorch may want other versions of
# them.
need_nvcc() {
  local folder=$PWD/build/cuda-toolkit
  local toolkit=$folder/nvidia/cu13
  if command -v nvcc >/dev/null && nvcc --version | grep -q 'release 13\.'; then return; fi
  if ! cmp -s scripts/requirements-cuda.txt "$folder/requirements.txt"; then
    need_lint  # there is a .venv then
    say "installing scripts/requirements-cuda.txt into build/cuda-toolkit"
    rm -rf "$folder"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --target "$folder" -r scripts/requirements-cuda.txt >&2
    ln -s lib "$toolkit/lib64"  # as nvcc and CMake call them
    ln -s libcudart.so.13 "$toolkit/lib/libcudart.so"
    cp scripts/requirements-cuda.txt "$folder/requirements.txt"
  fi
  export CUDACXX=$toolkit/bin/nvcc CUDAToolkit_ROOT=$toolkit
}

# need_package PRESET: the Python package, its module compiled in build/PRESET, its Python files as they lie here. Commands that
# follow find it.
need_package() {
  local package=$PWD/build/$1/python
  # The dev preset has the tests too.
  if [ "$1" = dev ]; then need "${test_packages[@]}"; else need "${build_packages[@]}"; fi
  use_compiler_cache
  need_python
  need_no_installed_package
  say "building the Python package"
  cmake --preset "$1" -DEBB_PYTHON=ON "-DPython_EXECUTABLE=$PWD/.venv/bin/python" >&2
  cmake --build "build/$1" --target python_package >&2
  export PYTHONPATH=$package${PYTHONPATH:+:$PYTHONPATH}
}

# An editable installation hooks into imports, and would be found before the package that was just built.
need_no_installed_package() {
  .venv/bin/python -m pip show --quiet ebb >/dev/null 2>&1 || return 0
  .venv/bin/python -m pip uninstall --quiet --disable-pip-version-check --yes ebb >&2
}

# The clang++ that brings libFuzzer; libstdc++ comes with g++.
fuzzing_clang() {
  local runtime
  for runtime in /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-"$(uname -m)".a; do
    runtime=${runtime#/usr/lib/llvm-}
    command -v "clang++-${runtime%%/*}" && return
  done
  return 1
}

need_fuzzing_clang() {
  local version
  fuzzing_clang >/dev/null && return
  as_root apt-get update -qq
  version=$(apt-cache depends clang | sed -n 's/^ *Depends: clang-\([0-9]*\)$/\1/p')
  install "clang-$version" "libclang-rt-$version-dev"
  fuzzing_clang >/dev/null || die "clang-$version has no libFuzzer here"
}
