// SPDX-License-Identifier: Apache-2.0
// The whole public interface of ebb.
#pragma once

#include "ebb/core/bytes.h"
#include "ebb/core/error.h"
#include "ebb/core/version.h"
#include "ebb/plan/action.h"
#include "ebb/plan/bound.h"
#include "ebb/plan/chain.h"
#include "ebb/plan/machine.h"
#include "ebb/plan/plan.h"
#include "ebb/plan/platform.h"
#include "ebb/plan/replay.h"
#include "ebb/plan/strategies.h"
#include "ebb/plan/text.h"
