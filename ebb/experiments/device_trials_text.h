// SPDX-License-Identifier: Apache-2.0
// Trials on a CUDA device as words and as figure data; shared by the experiments that run them.
#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "ebb/experiments/device_trials.h"
#include "ebb/experiments/figure_data.h"

namespace ebb {

// "plain", "double", "auto: revolve"
std::string strategy_words(const DeviceTrial& trial);

// Why there are no figures: "does not fit (least 3 MiB)", "more than the device has".
std::string unfit_words(const DeviceTrial& trial);

// Time steps run forward for each one of the sequence: "1.97".
std::string forwards_words(const DeviceTrial& trial);

// Bytes written to the host and read from it, for each time step.
std::string moved_words(const DeviceTrial& trial);

// Chunk, ratios predicted and measured, forwards, bytes moved; or that it does not fit. And what these columns are called.
void add_costs(const DeviceTrial& trial, std::vector<std::string>& row);
std::vector<std::string> cost_titles(std::vector<std::string> first);

// What is true of all trials, as lines: how they were measured; how far runs of one were apart, whether gradients are bit-identical to plain's.
void write_measured(int repeat, std::ostream& out);
void write_verdicts(std::span<const DeviceTrial> trials, std::ostream& out);

// `head` and, behind it, "series": {"longest": [...], ...}
std::string device_json(Json head, std::span<const DeviceTrial> trials);

// One line a trial, after a line of names.
void write_device_csv(std::span<const DeviceTrial> trials, std::ostream& out);

}  // namespace ebb
