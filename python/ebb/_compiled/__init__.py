# SPDX-License-Identifier: Apache-2.0
"""Saved activations of models that torch.compile compiles."""
