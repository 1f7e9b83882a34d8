// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/learner.h"

#include <type_traits>

#include "ebb/core/error.h"
#include "ebb/device/device_memory.h"
#include "ebb/train/device_learner.h"
#include "ebb/train/host_learner.h"
#include "ebb/train/training_device.h"

namespace ebb {
namespace {

using Kind = TrainingDevice::Kind;

// What only a GPU has is an error for who asked for the CPU. A run that was begun on a GPU, or was to begin on any device, goes on
// without. `passed_over` is why a GPU that is there does not run the net; empty: there is none, or none was asked for.
void check_for_host(const LearnerSetup& setup, Kind asked, const std::string& passed_over) {
  const TrainOptions& options = setup.options;
  if (setup.resumes) return;
  if (is_device_number(options.dtype)) {
    const bool has_gpu = !passed_over.empty();
    throw Error(ErrorCode::invalid_argument,
                "dtype is " + options.dtype + ", which only a GPU computes with" +
                    (has_gpu ? ", and the one here does not run the net: " + passed_over : ""),
                {},
                has_gpu ? "change the net, or take float or double to train on the cpu"
                        : "train on one, or take float or double");
  }
  constexpr Bytes large = Bytes{1} << 40;  // of which any share is something
  if (asked == Kind::cpu && host_budget_bytes(options, large) > 0) {
    throw Error(ErrorCode::invalid_argument,
                "host_budget is " + options.host_budget + ", but the net is trained on the cpu", {},
                "give a slow tier instead, or a GPU as device");
  }
}

}  // namespace

template <class Number>
std::unique_ptr<Learner<Number>> make_learner(const LearnerSetup& setup, const Batch& sample) {
  const Kind asked = parse_training_device(setup.options.device).kind;
  std::string passed_over;
  if constexpr (std::is_same_v<Number, float>) {
    if (asked == Kind::cuda) return std::make_unique<DeviceLearner>(setup, sample);
    if (asked == Kind::any && cuda_missing().empty()) {
      try {
        return std::make_unique<DeviceLearner>(setup, sample);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::invalid_argument) throw;
        passed_over = error.what();
      }
    }
  } else if (asked == Kind::cuda) {
    fail(ErrorCode::invalid_argument, "dtype is double, and device is ", setup.options.device,
         "; a GPU computes with float, tf32, bf16 or f16");
  }
  check_for_host(setup, asked, passed_over);
  return std::make_unique<HostLearner<Number>>(setup, sample, passed_over);
}

template std::unique_ptr<Learner<float>> make_learner(const LearnerSetup&, const Batch&);
template std::unique_ptr<Learner<double>> make_learner(const LearnerSetup&, const Batch&);

}  // namespace ebb
