# SPDX-License-Identifier: Apache-2.0
"""Tensors and functions over them: what a function reaches, uses, changes and weighs."""
