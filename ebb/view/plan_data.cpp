// SPDX-License-Identifier: Apache-2.0
#include "ebb/view/plan_data.h"

#include <chrono>
#include <cmath>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/core/units.h"
#include "ebb/core/words.h"
#include "ebb/plan/replay.h"
#include "ebb/plan/strategies.h"
#include "ebb/view/curve.h"
#include "ebb/view/film.h"

namespace ebb {
namespace {

// A plan beyond this many actions takes longer to replay than anybody waits for a page.
constexpr std::int64_t kMostActions = 50'000'000;

class FilmWatch : public ReplayWatch {
 public:
  FilmWatch(Film& film, const Machine& machine) : film_(film), tiers_(machine.platform.tiers) {}

  void ran(const Action& action, double start, double end) override {
    std::visit(
        [&](const auto& a) {
          using Kind = std::decay_t<decltype(a)>;
          if constexpr (std::is_same_v<Kind, Advance>) {
            film_.worked(Film::Work::advance, start, end, a.from, a.to);
          } else if constexpr (std::is_same_v<Kind, Record>) {
            film_.worked(Film::Work::record, start, end, a.from, a.to);
          } else if constexpr (std::is_same_v<Kind, Reverse>) {
            film_.worked(Film::Work::reverse, start, end, a.from, a.to);
          }
        },
        action);
  }
  void copied(const Copy& copy, Bytes bytes, double start, double end) override {
    const bool slow = copy.to.is_slow() || copy.from.is_slow();
    const bool out = slow ? copy.to.is_slow() : copy.from == Place::work;
    const Place place = out ? copy.to : copy.from;
    const std::size_t lane =
        slow ? 1 + 2 * static_cast<std::size_t>(place.tier()) + (out ? 0 : 1) : 0;
    film_.moved(lane, out, copy.item == Item::tape, copy.step, bytes, start, end);
  }
  void waited(double start, double end) override {
    film_.worked(Film::Work::wait, start, end, 0, 0);
  }
  void held(Place place, Bytes bytes, double at) override {
    film_.held(static_cast<std::size_t>(place.id - 1), bytes, at);
  }

 private:
  Film& film_;
  const std::vector<Tier>& tiers_;
};

Json film_data(const PlanPage& of) {
  const Machine& machine = of.plan.machine;
  FilmShape shape{.seconds = of.plan.prediction.seconds,
                  .steps = of.question.chain.steps(),
                  .events = of.plan.prediction.actions,
                  .lanes = {"fast"},
                  .places = {{"fast", machine.platform.fast}}};
  for (const Tier& tier : machine.platform.tiers) {
    shape.lanes.push_back(tier.name + " writes");
    shape.lanes.push_back(tier.name + " reads");
    shape.places.push_back({tier.name, tier.capacity});
  }
  Film film(std::move(shape));
  FilmWatch watch(film, machine);
  const auto cursor = of.plan.cursor();
  replay(of.question.chain, machine, *cursor,
         {.length_unknown = of.plan.length_unknown, .watch = &watch});
  return film.json();
}

const StrategyRow* row_of(std::string_view name) {
  for (const StrategyRow& row : strategies()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::string bytes_of(Bytes bytes) { return bytes == kUnlimited ? "no limit" : format_bytes(bytes); }

std::string strategy_text(const PlanPage& of) {
  std::string text = of.plan.strategy;
  if (of.question.options.strategy != of.plan.strategy) {
    text += " (chosen by " + of.question.options.strategy + ")";
  }
  const StrategyRow* const row = row_of(of.plan.strategy);
  return row == nullptr ? text : text.append(": ").append(row->summary);
}

std::string time_text(const PlanPage& of) {
  const Chain& chain = of.question.chain;
  const std::int64_t n = chain.steps();
  const double plain = chain.record_seconds(0, n) + chain.backward_seconds(0, n);
  const double seconds = of.plan.prediction.seconds;
  std::string text = format_seconds(seconds);
  if (plain > 0) text += ", " + format_number(seconds / plain) + " x keeping every tape";
  return text;
}

// What is asked for and found, line by line.
Json figures(const PlanPage& of) {
  const Plan& plan = of.plan;
  const Prediction& found = plan.prediction;
  const Platform& platform = plan.machine.platform;
  const StepCost step = of.question.chain.typical();
  const bool same = of.question.chain.is_uniform();
  Json rows = Json::array();
  const auto add = [&rows](const std::string& label, const std::string& text) {
    rows.push_back({label, text});
  };
  add("Chain", std::to_string(of.question.chain.steps()) + " steps");
  add(same ? "A step" : "A step, on average",
      "forward " + format_seconds(step.forward) + ", leaving its tape " +
          format_seconds(step.record) + ", backward " + format_seconds(step.backward));
  add(same ? "Its bytes" : "At most",
      "state " + format_bytes(step.state) + ", tape " + format_bytes(step.tape));
  add("Strategy", strategy_text(of));
  std::string parameters;
  for (const auto& [name, value] : plan.parameters) {
    parameters += (parameters.empty() ? "" : ", ") + name + " " + std::to_string(value);
  }
  if (!parameters.empty()) add("Parameters", parameters);
  add("Time", time_text(of));
  add("Bound", "no exact plan takes less than " + format_seconds(plan.bound.seconds) +
                   ": gap at most " + format_percent(plan.gap()));
  add("Waiting", format_seconds(found.stall_seconds) + " for transfers");
  add("Forward steps", std::to_string(found.forwards) + " (" + std::to_string(found.advances) +
                           " keep nothing, " + std::to_string(found.records) + " leave tapes)");
  for (std::size_t i = 0; i < found.peak.size() && i <= platform.tiers.size(); ++i) {
    const Bytes limit = i == 0 ? platform.fast : platform.tiers[i - 1].capacity;
    add("Peak in " + (i == 0 ? "fast memory" : platform.tiers[i - 1].name),
        format_bytes(found.peak[i]) +
            (limit == kUnlimited ? ", no limit" : " of " + bytes_of(limit)));
  }
  for (std::size_t i = 0; i < found.moved.size() && i < platform.tiers.size(); ++i) {
    add("Moved to and from " + platform.tiers[i].name,
        format_bytes(found.moved[i].written) + " written, " + format_bytes(found.moved[i].read) +
            " read");
  }
  add("Least budget",
      of.least ? format_bytes(*of.least) : std::string("none works with these tiers"));
  return rows;
}

std::string title_of(const PlanPage& of) {
  return std::to_string(of.question.chain.steps()) + " steps in " +
         (of.plan.machine.platform.fast == kUnlimited
              ? std::string("unlimited memory")
              : format_bytes(of.plan.machine.platform.fast)) +
         ": " + of.plan.strategy;
}

}  // namespace

Json plan_data(const PlanPage& of) {
  if (of.plan.prediction.actions > kMostActions) {
    fail(ErrorCode::unavailable, "view: the plan has ", of.plan.prediction.actions,
         " actions; pages are made of at most ", kMostActions);
  }
  Json data = {{"kind", "plan"}, {"title", title_of(of)}, {"figures", figures(of)}};
  data["film"] = film_data(of);
  if (of.curve_seconds > 0) data["curve"] = budget_curve(of.question, of.plan, of.curve_seconds);
  const Bytes budget = of.plan.machine.platform.fast;
  // Where the budget has no limit, what the plan takes.
  data["chosen"] = {{"strategy", of.plan.strategy},
                    {"budget", budget == kUnlimited ? of.plan.prediction.peak[0] : budget},
                    {"seconds", of.plan.prediction.seconds},
                    {"bound", of.plan.bound.seconds}};
  data["plan"] =
      parse_json(to_json(of.plan, of.question.chain.steps(), of.plan_seconds, of.least), "plan");
  return data;
}

Json plan_data_from(const Json& json, std::string_view name) {
  const auto asked = json.find("question");
  if (asked == json.end()) {
    fail(ErrorCode::invalid_argument, name,
         ": this plan does not say what it was made for (an earlier version of ebb wrote it, or it "
         "is one of a sweep); make it "
         "again with ebb plan --json");
  }
  const PlanQuestion question = question_from_json(asked->dump());
  const auto start = std::chrono::steady_clock::now();
  const Plan plan = make_plan(question.chain, question.platform, question.options);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto least = least_budget(question.chain, question.platform, question.options);
  Json data =
      plan_data({.question = question, .plan = plan, .plan_seconds = seconds, .least = least});
  const auto before = json.find("seconds");
  if (before != json.end() && before->is_number()) {
    const double then = before->get<double>();
    if (std::abs(then - plan.prediction.seconds) > 1e-9 * std::abs(then)) {
      data["remarks"] = Json::array({"The file says " + format_seconds(then) +
                                     "; this version of ebb plans anew, and finds " +
                                     format_seconds(plan.prediction.seconds) + "."});
    }
  }
  return data;
}

Json sweep_data(const Json& json, std::string_view name) {
  Json points = Json::array(), bound = Json::array();
  for (const Json& point : json) {
    for (const char* key : {"budget", "seconds", "bound_seconds"}) {
      if (!point.is_object() || !point.contains(key) || !point[key].is_number()) {
        fail(ErrorCode::invalid_argument, name, ": each plan of a sweep needs the number \"", key,
             "\"");
      }
    }
    points.push_back({point["budget"], point["seconds"]});
    bound.push_back({point["budget"], point["bound_seconds"]});
  }
  return {{"kind", "sweep"},
          {"title", "Time against budget"},
          {"curve",
           {{"lines", Json::array({{{"strategy", "the plans of the sweep"}, {"points", points}}})},
            {"bound", bound},
            {"left_out", Json::array()}}}};
}

}  // namespace ebb
