# SPDX-License-Identifier: Apache-2.0
# Time and peak of PyTorch training in a budget, against plain autograd and what PyTorch has to offer.
need_package release
exec .venv/bin/python bench/pytorch/table.py "$@"
