# SPDX-License-Identifier: Apache-2.0
"""What every module needs: the error, bytes and budgets as callers say them. NumPy at most."""
