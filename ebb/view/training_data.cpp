// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "ebb/core/error.h"
#include "ebb/core/units.h"
#include "ebb/view/run_data.h"

namespace ebb {
namespace {

// More points than a screen has columns are drawn as ranges.
constexpr std::size_t kMostPoints = 1200;
constexpr std::uint64_t kMostIterations = 1'000'000'000'000;

bool is_test(const Json& line) {
  return (line.contains("split") && line["split"] == "test") ||
         (line.contains("event") && line["event"] == "test");
}

double number_in(const Json& line, const std::string& key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>()
                                                   : std::numeric_limits<double>::quiet_NaN();
}

Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

// {"at":[...],"low":[...],"mean":[...],"high":[...],"missing":n}: values that are not finite are counted, not drawn.
Json series(const std::vector<const Json*>& lines, const std::string& key) {
  Json at = Json::array(), low = Json::array(), mean = Json::array(), high = Json::array();
  std::int64_t missing = 0;
  const std::size_t group = (lines.size() + kMostPoints - 1) / kMostPoints;
  for (std::size_t i = 0; i < lines.size(); i += std::max<std::size_t>(group, 1)) {
    double least = std::numeric_limits<double>::infinity(), most = -least, sum = 0;
    std::int64_t count = 0;
    const std::size_t end = std::min(lines.size(), i + std::max<std::size_t>(group, 1));
    for (std::size_t j = i; j < end; ++j) {
      const double value = number_in(*lines[j], key);
      if (!std::isfinite(value)) {
        missing += lines[j]->contains(key) ? 1 : 0;
        continue;
      }
      least = std::min(least, value);
      most = std::max(most, value);
      sum += value;
      ++count;
    }
    if (count == 0) continue;
    at.push_back((*lines[end - 1])["iteration"]);
    low.push_back(finite(least));
    mean.push_back(finite(sum / static_cast<double>(count)));
    high.push_back(finite(most));
  }
  return {{"at", at}, {"low", low}, {"mean", mean}, {"high", high}, {"missing", missing}};
}

// The key of the task's own measure, such as "accuracy"; empty without one.
std::string metric_of(const std::vector<Json>& lines) {
  constexpr std::array known{"iteration", "split",          "event",        "loss",
                             "lr",        "gradient_norm",  "seconds",      "peak_bytes",
                             "activity",  "dropped_spikes", "seconds_left", "rate"};
  for (const char* usual : {"accuracy", "error", "nats", "bits"}) {
    for (const Json& line : lines) {
      if (line.contains(usual) && line[usual].is_number()) return usual;
    }
  }
  for (const Json& line : lines) {
    for (const auto& [key, value] : line.items()) {
      if (value.is_number() && std::ranges::find(known, key) == known.end()) return key;
    }
  }
  return "";
}

void add_chart(Json& charts, const std::string& title, const std::string& key,
               const std::vector<const Json*>& train, const std::vector<const Json*>& test) {
  Json lines = Json::array();
  const auto add = [&](const char* name, const std::vector<const Json*>& of) {
    Json one = series(of, key);
    if (one["at"].empty() && one["missing"] == 0) return;
    one["name"] = name;
    lines.push_back(std::move(one));
  };
  add("training", train);
  add("test", test);
  // One value all along is a figure, no curve.
  const bool flat = key == "lr" && std::ranges::all_of(train, [&](const Json* line) {
                      return (*line).contains(key) && (*line)[key] == (*train.front())[key];
                    });
  if (!lines.empty() && !flat) charts.push_back({{"title", title}, {"lines", lines}});
}

}  // namespace

bool is_training_line(const Json& json) {
  return json.is_object() && json.contains("iteration") && json["iteration"].is_number_unsigned() &&
         json["iteration"].get<std::uint64_t>() <= kMostIterations && json.contains("loss");
}

Json training_data(std::vector<Json> lines, const Json& options, std::string_view name) {
  if (lines.empty()) {
    fail(ErrorCode::invalid_argument, name,
         ": no iteration has finished yet; there is nothing to show");
  }
  // A log may have been gone on with from an earlier iteration.
  const auto iteration = [](const Json& line) { return line["iteration"].get<std::int64_t>(); };
  std::ranges::stable_sort(lines, {}, iteration);
  std::vector<const Json*> train, test;
  for (const Json& line : lines) (is_test(line) ? test : train).push_back(&line);
  const Json& last = lines.back();
  Json figures = Json::array();
  const auto add = [&](const std::string& label, const std::string& text) {
    figures.push_back({label, text});
  };
  if (options.is_object()) {
    constexpr std::array shown{
        std::pair{"task", "Task"},        std::pair{"cell", "Cell"},
        std::pair{"hidden", "Units"},     std::pair{"layers", "Layers"},
        std::pair{"steps", "Time steps"}, std::pair{"batch", "Batch"},
        std::pair{"budget", "Budget"},    std::pair{"strategy", "Strategy"},
        std::pair{"device", "Device"},    std::pair{"optimiser", "Optimiser"},
        std::pair{"lr", "Learning rate"}};
    for (const auto& [key, label] : shown) {
      if (!options.contains(key) || options[key].is_null()) continue;
      const Json& value = options[key];
      const bool bytes = std::string_view(key) == "budget" && value.is_number_integer();
      add(label, bytes               ? format_bytes(value.get<Bytes>())
                 : value.is_string() ? value.get<std::string>()
                                     : value.dump());
    }
  }
  add("Iterations", std::to_string(iteration(last)));
  const double seconds = number_in(last, "seconds");
  if (std::isfinite(seconds)) add("Time", format_seconds(seconds));
  double peak = 0;
  for (const Json& line : lines)
    peak = std::max(
        peak, std::isfinite(number_in(line, "peak_bytes")) ? number_in(line, "peak_bytes") : 0);
  if (peak > 0) add("Peak of fast memory", format_bytes(static_cast<Bytes>(peak)));
  const std::string metric = metric_of(lines);
  const auto say_last = [&](const char* what, const std::vector<const Json*>& of) {
    if (of.empty()) return;
    const double loss = number_in(*of.back(), "loss"), value = number_in(*of.back(), metric);
    std::string text =
        std::string("loss ") + (std::isfinite(loss) ? format_number(loss) : "not finite");
    if (!metric.empty() && std::isfinite(value)) text += ", " + metric + " " + format_number(value);
    add(what, text);
  };
  say_last("Last iteration", train);
  say_last("Last test", test);
  Json charts = Json::array();
  add_chart(charts, "Loss", "loss", train, test);
  if (!metric.empty()) {
    std::string title = metric;
    if (title[0] >= 'a' && title[0] <= 'z') title[0] = static_cast<char>(title[0] - 'a' + 'A');
    add_chart(charts, title, metric, train, test);
  }
  add_chart(charts, "Norm of the gradient", "gradient_norm", train, {});
  add_chart(charts, "Learning rate", "lr", train, {});
  return {{"title", titled("Training", name)}, {"figures", figures}, {"charts", charts}};
}

}  // namespace ebb
