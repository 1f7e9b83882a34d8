# SPDX-License-Identifier: Apache-2.0
"""Tapes and states of loops in fewer bytes."""
