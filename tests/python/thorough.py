# SPDX-License-Identifier: Apache-2.0
"""Whether long tests try all that they can, as in ./dev test all, or a share."""

import os

THOROUGH = os.environ.get("EBB_EXAMPLES") == "all"
