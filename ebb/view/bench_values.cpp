// SPDX-License-Identifier: Apache-2.0
#include "ebb/view/bench_values.h"

#include <algorithm>
#include <cmath>

#include "ebb/core/bytes.h"
#include "ebb/core/units.h"

namespace ebb {
namespace {

constexpr const char* kNoValue = "-";

// Whoever wrote the file may have written any number.
Bytes as_bytes(double value) {
  return value < static_cast<double>(kUnlimited) ? static_cast<Bytes>(std::max(value, 0.0))
                                                 : kUnlimited;
}

double rounded_to(double value, double places) { return std::round(value * places) / places; }

double sum_of_numbers(const Json& value) {
  if (value.is_number()) return value.get<double>();
  double sum = 0;
  if (value.is_object()) {
    for (const Json& part : value) sum += sum_of_numbers(part);
  }
  return sum;
}

// Those of async have no chunks: a step is a time step.
Json time_steps_of(const Json& run) {
  return run.contains("steps") ? number_at(run, "/steps") : number_at(run, "/time_steps");
}

}  // namespace

Json number_at(const Json& run, const std::string& path) {
  const Json::json_pointer at(path);
  return run.contains(at) && run.at(at).is_number() ? run.at(at) : Json();
}

std::string seconds_at(const Json& run, const std::string& path) {
  const Json value = number_at(run, path);
  return value.is_null() ? kNoValue : format_seconds(value.get<double>());
}

std::string bytes_at(const Json& run, const std::string& path) {
  const Json value = number_at(run, path);
  return value.is_null() ? kNoValue : format_bytes(as_bytes(value.get<double>()));
}

std::string ratio_at(const Json& run, const std::string& path) {
  const Json value = number_at(run, path);
  return value.is_null() ? kNoValue : format_number(rounded_to(value.get<double>(), 1000)) + " x";
}

std::string percent_at(const Json& run, const std::string& path) {
  const Json value = number_at(run, path);
  return value.is_null() ? kNoValue : format_percent(rounded_to(value.get<double>(), 1000));
}

std::string count_at(const Json& run, const std::string& path) {
  const Json value = number_at(run, path);
  return value.is_null() ? kNoValue : value.dump();
}

bool run_fits(const Json& run) { return run.at("fits").get<bool>(); }

std::string run_name(const Json& run) {
  const auto strategy = run.at("strategy").get<std::string>();
  const bool in_turn = run.contains("sync") && run.at("sync").get<bool>();
  return in_turn ? strategy + ", in turn" : strategy;
}

std::string run_choice(const Json& run) {
  if (!run_fits(run)) return "";
  const auto chosen = run.at("chosen").get<std::string>();
  return chosen == run.at("strategy").get<std::string>() ? "" : "as " + chosen;
}

std::string unfit_words(const Json& run) {
  if (run.contains("too_large") && run.at("too_large").get<bool>()) {
    return "more than the device has";
  }
  const bool known = !number_at(run, "/least_budget").is_null();
  return known ? "does not fit (least " + bytes_at(run, "/least_budget") + ")" : "does not fit";
}

Verdict verdict_of(const Json& run, const Json& goal) {
  const auto meets = [&](const char* path) {
    const Json ratio = number_at(run, path);
    return !ratio.is_null() && ratio.get<double>() <= goal.get<double>();
  };
  if (meets("/measured/ratio")) return Verdict::met;
  return meets("/measured/least_ratio") ? Verdict::undecided : Verdict::missed;
}

std::string verdict_words(const Json& run, Verdict verdict) {
  const char* const word = verdict == Verdict::met         ? "met"
                           : verdict == Verdict::undecided ? "undecided, some of the runs meet it"
                                                           : "missed";
  return "predicted " + ratio_at(run, "/predicted/ratio") + ", measured " +
         ratio_at(run, "/measured/ratio") + ": " + word;
}

std::string forwards_of_run(const Json& run) {
  const Json forwards = number_at(run, "/measured/forwards"), steps = time_steps_of(run);
  if (forwards.is_null() || steps.is_null()) return kNoValue;
  const Json chunk = number_at(run, "/chunk");
  const double each = chunk.is_null() ? 1 : chunk.get<double>();
  const double planned = std::ceil(steps.get<double>() / each);
  return format_number(rounded_to(forwards.get<double>() / planned, 1000));
}

std::string moved_of_run(const Json& run) {
  const Json steps = time_steps_of(run);
  if (steps.is_null() || !run.contains("measured") || !run.at("measured").contains("moved")) {
    return kNoValue;
  }
  const double bytes = sum_of_numbers(run.at("measured").at("moved")) / steps.get<double>();
  return std::isfinite(bytes) ? format_bytes(as_bytes(bytes)) : kNoValue;
}

std::string waiting_of_run(const Json& run) {
  const Json stall = number_at(run, "/measured/stall_seconds");
  const Json seconds = number_at(run, "/measured/seconds");
  if (stall.is_null() || seconds.is_null()) return kNoValue;
  return format_percent(rounded_to(stall.get<double>() / seconds.get<double>(), 1000));
}

std::string budget_of_run(const Json& run) {
  const Json percent = number_at(run, "/percent");
  const std::string bytes =
      number_at(run, "/budget").is_null() ? "no limit" : bytes_at(run, "/budget");
  return percent.is_null() ? bytes : percent.dump() + " % (" + bytes + ")";
}

}  // namespace ebb
