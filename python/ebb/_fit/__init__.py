# SPDX-License-Identifier: Apache-2.0
"""Each layer in its way, so that a model fits a budget."""
