// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/train_text.h"

#include <algorithm>
#include <cmath>
#include <ostream>

#include "ebb/core/budget_words.h"
#include "ebb/core/json.h"
#include "ebb/core/layout.h"
#include "ebb/core/units.h"

namespace ebb {
namespace {

// Between two lines where there is no terminal: often at first, then ever more seldom.
constexpr double kSeconds = 2, kGrowth = 0.1;

std::string share(Bytes part, Bytes whole) {
  return format_percent(static_cast<double>(part) / static_cast<double>(whole));
}

std::string targets(const TaskShape& shape) {
  std::string text = std::to_string(shape.outputs);
  text += shape.classes ? " classes" : (shape.outputs == 1 ? " number" : " numbers");
  return text + (shape.every_step ? " at every step" : " at the end");
}

std::string net(const TrainOptions& options, const TrainPlan& plan) {
  std::string text = options.layer.cell + ", " + std::to_string(plan.shape.inputs);
  for (std::int64_t l = 0; l < options.layers; ++l)
    text += "-" + std::to_string(options.layer.hidden);
  return text + "-" + std::to_string(plan.shape.outputs) + " (" + options.readout + " readout), " +
         std::to_string(plan.parameters) + " parameters";
}

Json metrics_json(const Metrics& metrics) {
  Json json;
  json["iteration"] = metrics.iteration;
  json["loss"] = metrics.loss;
  if (!metrics.metric.empty()) json[metrics.metric] = metrics.value;
  if (metrics.lr) json["lr"] = *metrics.lr;
  if (metrics.gradient_norm) json["gradient_norm"] = *metrics.gradient_norm;
  json["seconds"] = metrics.seconds;
  if (metrics.peak_bytes) json["peak_bytes"] = *metrics.peak_bytes;
  return json;
}

Json plan_json(const TrainOptions& options, const TrainPlan& plan, double seconds,
               double plain_seconds) {
  Json json;
  json["event"] = "plan";
  json["fits"] = true;
  json["task"] = options.task;
  json["cell"] = options.layer.cell;
  json["parameters"] = plan.parameters;
  json["time_steps"] = plan.shape.steps;
  json["chunk"] = plan.chunk;
  json["grain"] = plan.chunk;  // its earlier name
  json["iterations"] = plan.iterations;
  json["resumed_at"] = plan.first;
  json["strategy"] = plan.strategy;
  json["exact"] = plan.windows == 1;
  json["budget"] = plan.budget == kUnlimited ? Json(nullptr) : Json(plan.budget);
  json["budget_share"] =
      plan.budget == kUnlimited
          ? Json(nullptr)
          : Json(static_cast<double>(plan.budget) / static_cast<double>(plan.plain));
  json["peak"] = plan.peak;
  json["plain"] = plan.plain;
  json["seconds"] = seconds;
  json["plain_seconds"] = plain_seconds;
  json["beside"] = plan.beside;
  json["planning"] = plan.planning;
  json["tiers"] = Json::array();
  for (std::size_t k = 0; k < plan.tiers.size(); ++k) {
    json["tiers"].push_back({{"name", plan.tiers[k]}, {"peak", plan.prediction.peak[k + 1]}});
  }
  json["device"] = plan.device;
  if (!plan.trained_on.empty()) json["trained_on"] = plan.trained_on;
  if (!plan.passed_over.empty()) json["passed_over"] = plan.passed_over;
  json["threads"] = plan.threads;
  json["ranks"] = plan.ranks;
  return json;
}

std::string score(const Metrics& metrics) {
  std::string text = "loss " + format_number(metrics.loss);
  if (!metrics.metric.empty()) text += "  " + metrics.metric + " " + format_percent(metrics.value);
  return text;
}

}  // namespace

TrainText::TrainText(const TrainOptions& options, bool json, std::ostream& out, std::ostream& err)
    : options_(options), json_(json), out_(out), status_(err) {}

void TrainText::found(const TrainPlan& plan, double slowdown) {
  if (json_) return;
  out_ << "At most " << format_number(slowdown) << " x the time of keeping everything: --budget "
       << plan.budget << ", or " << least_share(plan.budget, plan.plain)
       << " of what that takes.\n";
}

void TrainText::plan(const TrainPlan& plan) {
  plan_ = plan;
  const double seconds = plan.prediction.seconds * static_cast<double>(plan.windows);
  const double plain_seconds = plan.plain_seconds * static_cast<double>(plan.windows);
  if (json_) {
    out_ << plan_json(options_, plan, seconds, plain_seconds).dump() << '\n' << std::flush;
    return;
  }
  out_ << (plan.budget == kUnlimited ? "No budget is set.\n\n"
                                     : "It fits in " + format_bytes(plan.budget) + ".\n\n");
  Lines lines(out_);
  lines.add("task",
            options_.task + ", " + std::to_string(plan.shape.steps) + " steps of " +
                std::to_string(plan.shape.inputs) + (plan.shape.spikes ? " spikes" : " inputs") +
                ", " + targets(plan.shape) + ", batch " + std::to_string(options_.batch) +
                (plan.ranks > 1 ? " in each of " + std::to_string(plan.ranks) + " processes" : ""));
  lines.add("net", net(options_, plan));
  if (plan.device != "cpu") lines.add("device", plan.device + ", in " + options_.dtype);
  if (!plan.trained_on.empty()) {
    lines.add(plan.device == "cpu" ? "device" : "",
              (plan.device == "cpu" ? "cpu; " : "") +
                  std::string("the checkpoint was trained on ") + plan.trained_on +
                  ": from here on bits are not those of going on there");
  }
  if (!plan.passed_over.empty()) {
    lines.add("device", "cpu, not the GPU that is here: " + plan.passed_over);
  }
  if (plan.windows > 1) {
    lines.add("gradients",
              "NOT EXACT: cut off every " + options_.strategy.substr(10) + " time steps");
  } else {
    lines.add(
        "gradients",
        "exact, the same bits as keeping everything" +
            (plan.device == "cpu" ? std::string() : " in chunks of " + std::to_string(plan.chunk)));
  }
  lines.add("strategy", plan.strategy + ", " + std::to_string(plan.steps) + " steps of " +
                            std::to_string(plan.chunk) + " time steps");
  lines.add("memory", format_bytes(plan.peak) + ", " + share(plan.peak, plan.plain) + " of the " +
                          format_bytes(plan.plain) + " that keeping everything takes at least");
  lines.add("", format_bytes(plan.beside) +
                    (plan.device == "cpu" ? " beside: parameters, gradients, optimiser, batch, data"
                                          : " beside, on the GPU: parameters, gradients, "
                                            "optimiser, batch, outputs"));
  if (plan.planning > plan.peak) {
    lines.add("", format_bytes(plan.planning) + " while it was planned, given back since");
  }
  for (std::size_t k = 0; k < plan.tiers.size(); ++k) {
    lines.add("", format_bytes(plan.prediction.peak[k + 1]) + " in tier " + plan.tiers[k]);
  }
  lines.add("time", format_seconds(seconds) + " an iteration predicted" +
                        (plan.device == "cpu" ? "" : " for an H200") + ", " +
                        format_number(seconds / plain_seconds) + " x keeping everything");
  lines.add("", std::to_string(plan.iterations - plan.first) + " iterations: about " +
                    format_seconds(seconds * static_cast<double>(plan.iterations - plan.first)));
  if (plan.first > 0) lines.add("resumed", "after iteration " + std::to_string(plan.first));
  out_ << '\n' << std::flush;
}

void TrainText::planned_again(const TrainPlan& plan, const WrongPrediction& wrong) {
  const double seconds = plan.prediction.seconds * static_cast<double>(plan.windows);
  if (json_) {
    Json json;
    json["event"] = "planned_again";
    json["predicted"] = wrong.predicted;
    json["took"] = wrong.took;
    json["seconds"] = seconds;
    json["strategy"] = plan.strategy;
    json["peak"] = plan.peak;
    out_ << json.dump() << '\n' << std::flush;
    return;
  }
  status_.say("");
  out_ << "An iteration took " << format_seconds(wrong.took) << ", not the predicted "
       << format_seconds(wrong.predicted) << ". Measured again: " << format_seconds(seconds)
       << ", strategy " << plan.strategy << ", " << format_bytes(plan.peak) << ".\n"
       << std::flush;
}

std::string TrainText::progress(const TrainLine& line) const {
  const Metrics& now = line.metrics;
  std::string text = "iteration " + std::to_string(now.iteration) + "/" +
                     std::to_string(plan_.iterations) + "  " + score(now);
  const double done = static_cast<double>(now.iteration - first_iteration_);
  if (done > 0) {
    const double rate = done / (now.seconds - first_seconds_);
    text += "  " + format_number(std::round(rate * 100) / 100) + " it/s";
    const auto left = static_cast<double>(plan_.iterations - now.iteration);
    text += "  ETA " + format_seconds(std::round(left / rate));
  }
  if (now.peak_bytes) {
    text += "  memory " + format_bytes(*now.peak_bytes);
    if (plan_.budget != kUnlimited) text += " of " + format_bytes(plan_.budget);
  }
  if (line.activity > 0)
    text += "  spikes " + format_percent(std::round(line.activity * 1e4) / 1e4);
  if (line.dropped_spikes > 0) text += "  dropped " + std::to_string(line.dropped_spikes);
  return text;
}

void TrainText::line(const TrainLine& line) {
  const bool is_test = line.metrics.split == Split::test;
  if (json_) {
    Json json;
    json["event"] = is_test ? "test" : "train";
    json.update(metrics_json(line.metrics));
    if (line.activity > 0) json["activity"] = line.activity;
    if (line.dropped_spikes > 0) json["dropped_spikes"] = line.dropped_spikes;
    out_ << json.dump() << '\n' << std::flush;
    return;
  }
  if (first_seconds_ < 0) {
    first_seconds_ = line.metrics.seconds;
    first_iteration_ = line.metrics.iteration;
  }
  const double now = line.metrics.seconds;
  const bool is_last = line.metrics.iteration == plan_.iterations;
  if (is_test) {
    status_.say("");
    out_ << "test after " << line.metrics.iteration << " iterations  " << score(line.metrics)
         << '\n'
         << std::flush;
  } else if (status_.is_shown() && !is_last) {
    status_.say(progress(line));
  } else if (is_last || now - last_line_ >= std::max(kSeconds, kGrowth * (now - first_seconds_))) {
    last_line_ = now;
    out_ << progress(line) << '\n' << std::flush;
  }
}

void TrainText::result(const TrainResult& result, const std::string& directory) {
  if (json_) {
    Json json;
    json["event"] = result.stopped ? "stopped" : "done";
    json["iterations"] = result.iterations;
    json["seconds"] = result.seconds;
    if (result.train) json["train"] = metrics_json(*result.train);
    if (result.test) json["test"] = metrics_json(*result.test);
    if (!result.report.strategy.empty()) {
      json["report"] = parse_json(result.report.json(), "report");
    }
    out_ << json.dump() << '\n' << std::flush;
    return;
  }
  status_.say("");
  out_ << '\n'
       << (result.stopped ? "Stopped after " : "Done: ") << result.iterations << " iterations in "
       << format_seconds(result.seconds) << ".\n\n";
  if (!result.report.strategy.empty()) {
    out_ << "The last iteration, without the optimiser:\n" << result.report.full() << '\n';
  }
  if (!directory.empty()) {
    out_ << "Parameters, checkpoint and metrics are in " << directory;
    if (result.stopped) out_ << "; continue with ebb train --resume " << directory;
    out_ << ".\n";
  }
}

}  // namespace ebb
