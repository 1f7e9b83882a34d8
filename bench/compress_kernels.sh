# SPDX-License-Identifier: Apache-2.0
# The arithmetic of compressed activations, beside PyTorch's and its floors; the options of bench/compress/kernels.py.
need_package release
exec .venv/bin/python bench/compress/kernels.py "$@"
