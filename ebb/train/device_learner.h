// SPDX-License-Identifier: Apache-2.0
// Learning on a CUDA device: parameters, batch, losses and the optimiser's state are there, and the host keeps what a checkpoint needs.
// Private.
#pragma once

#include <memory>

#include "ebb/run/device_network.h"
#include "ebb/train/learner.h"

namespace ebb {

// Throws Error(invalid_argument) for options that a device does not run, Error(unavailable) where there is none, and like
// DeviceNetwork.
class DeviceLearner : public Learner<float> {
 public:
  DeviceLearner(const LearnerSetup& setup, const Batch& sample);
  ~DeviceLearner() override;

  bool is_elsewhere() const override { return true; }
  void learn(const Batch& batch, double scale, std::uint64_t iteration,
             std::stop_token stop) override;
  Score score() override;
  void sum_gradient(Ranks& ranks) override;
  double step(double rate) override;
  Score test(const Batch& batch) override;
  double activity() const override { return 0; }
  std::int64_t dropped_spikes() const override { return 0; }
  Network<float>& network() override { return network_; }
  Optimiser<float>& optimiser() override { return optimiser_; }
  void fetch() override;
  void restored() override;
  TrainPlan plan() override;
  TrainPlan plan_within(double slowdown) override;
  Report report() const override;

 private:
  struct OnDevice;
  std::int64_t windows() const;
  DevicePlan planned(Bytes budget) const;
  TrainPlan described(const DevicePlan& chosen, Bytes budget) const;
  void run(const Batch& batch, double scale, bool learns, const std::stop_token& stop);

  LearnerSetup setup_;
  DeviceNetworkOptions wanted_;
  Network<float> network_;
  Optimiser<float> optimiser_;
  DevicePlan everything_;  // that keeps all
  DevicePlan plan_;
  std::unique_ptr<OnDevice> device_;  // null: plans only
};

}  // namespace ebb
