# SPDX-License-Identifier: Apache-2.0
"""What compressed layers compute, called by its meaning in `dispatch`."""
