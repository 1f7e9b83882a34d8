# SPDX-License-Identifier: Apache-2.0
# `./dev bench papers NAME [its options]`: a paper's experiment, as a table and as a figure in docs/pictures.
need_package release
need_figures
EBB_BINARY=$PWD/build/release/ebb exec .venv/bin/python bench/papers/measure.py "$@"
