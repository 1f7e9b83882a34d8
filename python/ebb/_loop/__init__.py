# SPDX-License-Identifier: Apache-2.0
"""Loops over time, and chains of stages, in a budget."""
