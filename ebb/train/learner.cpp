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

template <class Number>
std::unique_ptr<Learner<Number>> host_learner(const LearnerSetup& setup, const Batch& sample) {
  const TrainOptions& options = setup.options;
  if (is_device_number(options.dtype) && !setup.resumes) {
    fail(ErrorCode::invalid_argument, "dtype is ", options.dtype,
         ", which only a GPU computes with; train on one, or take float or double");
  }
  if (host_budget_bytes(options, 1) > 0) {
    throw Error(ErrorCode::invalid_argument,
                "host_budget is " + options.host_budget + ", but the net is trained on the cpu", {},
                "give a slow tier instead, or a GPU as device");
  }
  return std::make_unique<HostLearner<Number>>(setup, sample);
}

}  // namespace

template <class Number>
std::unique_ptr<Learner<Number>> make_learner(const LearnerSetup& setup, const Batch& sample) {
  const TrainingDevice device = parse_training_device(setup.options.device);
  if constexpr (std::is_same_v<Number, float>) {
    if (device.kind == Kind::cuda) return std::make_unique<DeviceLearner>(setup);
    if (device.kind == Kind::any && cuda_missing().empty()) {
      try {
        return std::make_unique<DeviceLearner>(setup);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::invalid_argument) throw;
      }
    }
  } else if (device.kind == Kind::cuda) {
    fail(ErrorCode::invalid_argument, "dtype is double, and device is ", setup.options.device,
         "; a GPU computes with float, tf32, bf16 or f16");
  }
  return host_learner<Number>(setup, sample);
}

template std::unique_ptr<Learner<float>> make_learner(const LearnerSetup&, const Batch&);
template std::unique_ptr<Learner<double>> make_learner(const LearnerSetup&, const Batch&);

}  // namespace ebb
