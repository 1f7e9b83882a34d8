# SPDX-License-Identifier: Apache-2.0
"""Saved tensors in slower memory."""
