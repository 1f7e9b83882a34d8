// SPDX-License-Identifier: Apache-2.0
#include "ebb/run/report.h"

#include <iomanip>
#include <sstream>

#include "ebb/core/json.h"

namespace ebb {
namespace {

std::string seconds_text(double seconds) {
  std::ostringstream text;
  text << std::setprecision(3);
  if (seconds < 1e-3) {
    text << seconds * 1e6 << " us";
  } else if (seconds < 1) {
    text << seconds * 1e3 << " ms";
  } else {
    text << seconds << " s";
  }
  return text.str();
}

std::string items_text(const TierTraffic::Direction& direction) {
  return std::to_string(direction.states) + " states, " + std::to_string(direction.tapes) +
         " tapes";
}

// A row of the full text: what, predicted, measured.
void row(std::ostringstream& text, const std::string& what, const std::string& predicted,
         const std::string& measured) {
  text << "  " << std::left << std::setw(24) << what << std::right << std::setw(16) << predicted
       << std::setw(16) << measured << '\n';
}

// What was predicted beside what was measured.
void write_compared(const Report& report, std::ostringstream& text) {
  const Prediction& predicted = report.predicted;
  const Measured& measured = report.measured;
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  row(text, "", "predicted", "measured");
  row(text, "forwards", number(predicted.forwards), number(measured.forwards()));
  row(text, "  kept nothing", number(predicted.advances), number(measured.advances));
  row(text, "  left tapes", number(predicted.records), number(measured.records));
  if (measured.extra_forwards > 0) {
    row(text, "  to make good", "", number(measured.extra_forwards));
  }
  row(text, "actions", number(predicted.actions), number(measured.actions));
  row(text, "time", seconds_text(predicted.seconds), seconds_text(measured.seconds));
  row(text, "waited for transfers", seconds_text(predicted.stall_seconds),
      seconds_text(measured.stall_seconds));
  for (std::size_t p = 0; p < measured.peak.size(); ++p) {
    const std::string place = p == 0 ? "fast" : report.tiers[p - 1];
    row(text, "peak in " + place, format_bytes(predicted.peak[p]), format_bytes(measured.peak[p]));
  }
  for (std::size_t k = 0; k < measured.tiers.size(); ++k) {
    row(text, "written to " + report.tiers[k], format_bytes(predicted.moved[k].written),
        format_bytes(measured.tiers[k].written.bytes));
    row(text, "read from " + report.tiers[k], format_bytes(predicted.moved[k].read),
        format_bytes(measured.tiers[k].read.bytes));
  }
}

void write_tiers(const Report& report, std::ostringstream& text) {
  for (std::size_t k = 0; k < report.measured.tiers.size(); ++k) {
    const TierTraffic& tier = report.measured.tiers[k];
    text << "  " << report.tiers[k] << ": out " << items_text(tier.written) << " in "
         << seconds_text(tier.written.busy_seconds) << "; in " << items_text(tier.read) << " in "
         << seconds_text(tier.read.busy_seconds);
    if (tier.written.stored != tier.written.bytes) {
      text << "; " << format_bytes(tier.written.stored) << " on the medium";
    }
    text << '\n';
  }
}

Json json_of(const TierTraffic::Direction& direction) {
  return {{"states", direction.states},
          {"tapes", direction.tapes},
          {"bytes", direction.bytes},
          {"stored", direction.stored},
          {"seconds", direction.busy_seconds}};
}

Json json_of(const Verification& found) {
  Json parts = Json::array();
  for (const Difference& part : found.parts) {
    parts.push_back({{"name", part.name},
                     {"elements", part.elements},
                     {"differing", part.differing},
                     {"largest", part.largest},
                     {"relative", part.relative},
                     {"cosine", part.cosine}});
  }
  return {{"steps", found.steps}, {"parts", parts}};
}

}  // namespace

std::string Report::brief() const {
  std::ostringstream text;
  text << strategy << ", " << measured.steps << " steps: " << measured.forwards() << " forwards";
  if (measured.forwards() != predicted.forwards)
    text << " (predicted " << predicted.forwards << ")";
  if (measured.extra_forwards > 0) text << " + " << measured.extra_forwards << " to make good";
  text << " in " << seconds_text(measured.seconds) << " (predicted "
       << seconds_text(predicted.seconds) << "), ";
  text << format_bytes(measured.peak.empty() ? 0 : measured.peak[0]);
  if (budget != kUnlimited) text << " of " << format_bytes(budget);
  for (std::size_t k = 0; k < measured.tiers.size(); ++k) {
    text << ", " << tiers[k] << ' ' << format_bytes(measured.tiers[k].written.bytes) << " out "
         << format_bytes(measured.tiers[k].read.bytes) << " in";
  }
  if (measured.stall_seconds > 0) text << ", waited " << seconds_text(measured.stall_seconds);
  if (codec_error && codec_error->steps > 0) {
    text << std::setprecision(3) << ", gradient error " << codec_error->relative();
  }
  if (!exact) text << ", NOT EXACT";
  return text.str();
}

std::string Report::full() const {
  std::ostringstream text;
  text << strategy << ", " << measured.steps << " steps\n";
  write_compared(*this, text);
  text << "  fast memory: " << format_bytes(booked) << " booked of " << format_bytes(budget) << "; "
       << measured.states_kept << " states and " << measured.tapes_kept
       << " tapes were kept there\n";
  write_tiers(*this, text);
  for (std::size_t p = 0; p < measured.first_states.size(); ++p) {
    if (measured.first_states[p].empty()) continue;
    text << "  states kept in " << (p == 0 ? "fast" : tiers[p - 1]) << ':';
    for (const std::int64_t step : measured.first_states[p]) text << ' ' << step;
    text << (measured.first_states[p].size() == Measured::kStatesNamed ? " ...\n" : "\n");
  }
  text << "  the caller holds " << format_bytes(callers) << " beside that\n";
  if (codec_error && codec_error->steps > 0) {
    text << "  lossy codec, gradients compared with exact ones: " << codec_error->text();
  } else if (codec_error) {
    text << "  lossy codec: its error was not measured, since the length is unknown or exact "
            "gradients of even the first steps do not fit\n";
  }
  for (const std::string& remark : remarks) text << "  note: " << remark << '\n';
  return text.str();
}

std::string Report::json() const {
  Json peaks = Json::object(), moved = Json::object();
  for (std::size_t p = 0; p < measured.peak.size(); ++p) {
    peaks[p == 0 ? "fast" : tiers[p - 1]] = {{"predicted", predicted.peak[p]},
                                             {"measured", measured.peak[p]}};
  }
  for (std::size_t k = 0; k < measured.tiers.size(); ++k) {
    moved[tiers[k]] = {
        {"predicted", {{"written", predicted.moved[k].written}, {"read", predicted.moved[k].read}}},
        {"written", json_of(measured.tiers[k].written)},
        {"read", json_of(measured.tiers[k].read)}};
  }
  const auto pair = [](const auto& before, const auto& after) {
    return Json{{"predicted", before}, {"measured", after}};
  };
  Json json = {{"strategy", strategy},
               {"steps", measured.steps},
               {"exact", exact},
               {"forwards", pair(predicted.forwards, measured.forwards())},
               {"advances", pair(predicted.advances, measured.advances)},
               {"records", pair(predicted.records, measured.records)},
               {"extra_forwards", measured.extra_forwards},
               {"actions", pair(predicted.actions, measured.actions)},
               {"seconds", pair(predicted.seconds, measured.seconds)},
               {"stall_seconds", pair(predicted.stall_seconds, measured.stall_seconds)},
               {"peak", peaks},
               {"moved", moved},
               {"budget", budget},
               {"booked", booked},
               {"states_kept", measured.states_kept},
               {"tapes_kept", measured.tapes_kept},
               {"first_states", Json::object()},
               {"callers_bytes", callers},
               {"failed_transfers", measured.failed_transfers},
               {"failures", measured.failures},
               {"remarks", remarks}};
  for (std::size_t p = 0; p < measured.first_states.size(); ++p) {
    json["first_states"][p == 0 ? "fast" : tiers[p - 1]] = measured.first_states[p];
  }
  if (codec_error) json["codec_error"] = json_of(*codec_error);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ebb
