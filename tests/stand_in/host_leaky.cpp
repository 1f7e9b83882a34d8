// SPDX-License-Identifier: Apache-2.0
// The leaky readout over a segment as ebb/cell/leaky.h says, on the host: for the device that the host plays.
#include "ebb/cell/leaky.h"
#include "tests/stand_in/host_queue.h"

namespace ebb {

void leaky_forward(const LeakyShape& shape, const float* decays, const float* before,
                   float* outputs, float* after, void* stream) {
  test::queue_of(stream)->add([=] {
    const std::int64_t state = shape.batch * shape.outputs;
    for (std::int64_t own = 0; own < state; ++own) {
      float now = before[own];
      const float decay = decays[own % shape.outputs];
      for (std::int64_t t = 0; t < shape.steps; ++t)
        outputs[t * state + own] = now = decay * now + (1 - decay) * outputs[t * state + own];
      after[own] = now;
    }
  });
}

void leaky_backward(const LeakyShape& shape, const LeakyBackward& given, void* stream) {
  test::queue_of(stream)->add([=] {
    const std::int64_t state = shape.batch * shape.outputs;
    for (std::int64_t own = 0; own < state; ++own) {
      const float decay = given.decays[own % shape.outputs];
      float carried = given.after_gradient[own], of_decay = 0;
      for (std::int64_t t = shape.steps - 1; t >= 0; --t) {
        const std::int64_t at = t * state + own;
        const float before = t == 0 ? given.before[own] : given.outputs[at - state];
        const float output =
            carried + (given.outputs_gradient == nullptr ? 0 : given.outputs_gradient[at]);
        const float input = (given.outputs[at] - decay * before) / (1 - decay);
        of_decay += output * (before - input);
        given.sums_gradient[at] = (1 - decay) * output;
        carried = decay * output;
      }
      given.before_gradient[own] = carried;
      if (given.decays_gradient != nullptr) given.decays_gradient[own] = of_decay;
    }
  });
}

}  // namespace ebb
