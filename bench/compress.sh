# SPDX-License-Identifier: Apache-2.0
# `./dev bench compress [memory|packages|compiled|accuracy|side_by_side|picture] [its options]`: compressed activations; memory unless named.
need_package release
run_python=(.venv/bin/python)
compress_bench "$@"
