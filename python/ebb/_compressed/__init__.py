# SPDX-License-Identifier: Apache-2.0
"""Layers that keep less for the backward pass: torch.nn's own with another forward method, so that everything else stays."""
