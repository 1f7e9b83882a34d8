# SPDX-License-Identifier: Apache-2.0
"""One module for each kind of layer."""
