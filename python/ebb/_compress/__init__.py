# SPDX-License-Identifier: Apache-2.0
"""Layers that keep less for the backward pass."""
