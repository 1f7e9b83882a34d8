// SPDX-License-Identifier: Apache-2.0
// Threads for calls that may come from any thread of a process, as autograd's do.
#pragma once

#include <functional>

#include "ebb/core/workers.h"

namespace ebb::python {

// Calls work(workers) with `threads` of them, kept from call to call. While another call has them,
// and in a process that was forked from one that had them, the work is done by the caller alone or
// by new ones: so only for work whose result does not depend on how many there are.
void with_workers(int threads, const std::function<void(Workers&)>& work);

}  // namespace ebb::python
