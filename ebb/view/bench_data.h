// SPDX-License-Identifier: Apache-2.0
// The pages of `ebb bench`, an experiment a file. Private to the room.
#pragma once

#include <string>

#include "ebb/core/json.h"

namespace ebb {

// What is said above the charts, and the charts.
struct BenchPage {
  std::string title;
  Json remarks = Json::array();  // what was missed
  Json figures = Json::array();
  Json parts = Json::array();

  void add(const std::string& label, const std::string& text) { figures.push_back({label, text}); }
};

// `json` is the object of --json, of a run on the CPU or with --device cuda.
BenchPage async_page(const Json& json);
BenchPage gruslys_page(const Json& json);
BenchPage double_page(const Json& json);

// What all say of their settings: the paper, the device, the step's times where there is a chain.
void add_settings(const Json& json, BenchPage& page);
// "lstm, 8 inputs, 128 units, batch 50, 71312 parameters"
std::string net_words(const Json& json, const std::string& cell);
// " on an NVIDIA H200" where the file names a device.
std::string device_words(const Json& json);
// How far the runs of a row were apart, and whether gradients are the same bits; a remark where they are not.
void add_verdicts(const Json& runs, BenchPage& page);

}  // namespace ebb
