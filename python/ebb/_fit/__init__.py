# SPDX-License-Identifier: Apache-2.0
"""Each layer handled in its own way, so that a model fits a budget."""
