// SPDX-License-Identifier: Apache-2.0
#include "ebb/view/plan_data.h"

#include <algorithm>
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
#include "ebb/plan/words.h"
#include "ebb/view/curve.h"
#include "ebb/view/film.h"
#include "ebb/view/run_data.h"

namespace ebb {
namespace {

class FilmWatch : public ReplayWatch {
 public:
  // lanes[k]: of tier k's writes and of its reads.
  FilmWatch(Film& film, std::vector<std::pair<std::size_t, std::size_t>> lanes)
      : film_(film), lanes_(std::move(lanes)) {}

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
    std::size_t lane = 0;
    if (slow) {
      const auto& [writes, reads] = lanes_[static_cast<std::size_t>(place.tier())];
      lane = out ? writes : reads;
    }
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
  std::vector<std::pair<std::size_t, std::size_t>> lanes_;
};

Json film_data(const PlanPage& of) {
  const Machine& machine = of.plan.machine;
  FilmShape shape{.seconds = of.plan.prediction.seconds,
                  .steps = of.question.chain.steps(),
                  .events = of.plan.prediction.actions,
                  .lanes = {"fast"},
                  .places = {{"fast", machine.platform.fast}}};
  std::vector<std::pair<std::size_t, std::size_t>> lanes;
  for (const Tier& tier : machine.platform.tiers) {
    const std::size_t writes = shape.lanes.size();
    lanes.emplace_back(writes, tier.duplex ? writes + 1 : writes);
    shape.lanes.push_back(tier.name + (tier.duplex ? " writes" : " transfers"));
    if (tier.duplex) shape.lanes.push_back(tier.name + " reads");
    shape.places.push_back({tier.name, tier.capacity});
  }
  Film film(std::move(shape));
  FilmWatch watch(film, std::move(lanes));
  const auto cursor = of.plan.cursor();
  replay(of.question.chain, machine, *cursor,
         {.length_unknown = of.plan.length_unknown, .watch = &watch});
  Json json = film.json();
  json["sync"] = machine.sync;
  return json;
}

std::string steps_text(std::int64_t steps) {
  return std::to_string(steps) + (steps == 1 ? " step" : " steps");
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
  add("Chain", steps_text(of.question.chain.steps()));
  add(same ? "A step" : "A step, on average",
      "forward " + format_seconds(step.forward) + ", leaving its tape " +
          format_seconds(step.record) + ", backward " + format_seconds(step.backward));
  add(same ? "Its bytes" : "At most",
      "state " + format_bytes(step.state) + ", tape " + format_bytes(step.tape));
  add("Strategy", strategy_text(plan, of.question.options));
  const std::string parameters = parameters_text(plan);
  if (!parameters.empty()) add("Parameters", parameters);
  add("Time", time_text(plan, of.question.chain));
  add("Bound", bound_text(plan));
  add("Waiting", format_seconds(found.stall_seconds) + " for transfers");
  add("Forward steps", std::to_string(found.forwards) + " (" + std::to_string(found.advances) +
                           " keep nothing, " + std::to_string(found.records) + " leave tapes)");
  for (std::size_t i = 0; i < found.peak.size() && i <= platform.tiers.size(); ++i) {
    const Bytes limit = i == 0 ? platform.fast : platform.tiers[i - 1].capacity;
    const auto text = [&](Bytes bytes) {
      return i == 0 ? budget_text(bytes, of.question.options, of.question.chain)
                    : format_bytes(bytes);
    };
    add("Peak in " + (i == 0 ? "fast memory" : platform.tiers[i - 1].name),
        text(found.peak[i]) + (limit == kUnlimited ? ", no limit" : " of " + text(limit)));
  }
  for (std::size_t i = 0; i < found.moved.size() && i < platform.tiers.size(); ++i) {
    add("Moved to and from " + platform.tiers[i].name,
        format_bytes(found.moved[i].written) + " written, " + format_bytes(found.moved[i].read) +
            " read");
  }
  add("Least budget", of.least ? budget_text(*of.least, of.question.options, of.question.chain)
                               : std::string("none works with these tiers"));
  return rows;
}

std::string title_of(const PlanPage& of) {
  const Bytes budget = of.plan.machine.platform.fast;
  return steps_text(of.question.chain.steps()) + " in " +
         (budget == kUnlimited ? std::string("unlimited memory")
                               : budget_text(budget, of.question.options, of.question.chain)) +
         ": " + of.plan.strategy;
}

Json explorer_data(const PlanQuestion& question) {
  Json names = Json::array();
  for (const StrategyRow& row : strategies()) names.push_back(row.name);
  return {{"question", Json::parse(to_json(question))}, {"strategies", names}};
}

std::string joined(const Json& names) {
  std::string text;
  for (const Json& name : names) text += (text.empty() ? "" : ", ") + name.get<std::string>();
  return text;
}

PlanQuestion question_in(const Json& asked, std::string_view name) {
  try {
    return question_from_json(asked.dump());
  } catch (const Error& error) {
    fail(error.code(), name, ": ", error.what());
  }
}

// What the points of a sweep say of their strategy; empty where they differ, as auto's do.
std::string common_strategy(const Json& points) {
  const auto strategy = [](const Json& point) {
    const auto found = point.find("strategy");
    return found != point.end() && found->is_string() ? found->get<std::string>() : "";
  };
  const std::string first = strategy(points.front());
  const auto is_first = [&](const Json& point) { return strategy(point) == first; };
  return std::all_of(points.begin(), points.end(), is_first) ? first : "";
}

}  // namespace

Json plan_data(const PlanPage& of) {
  Json data = {{"title", title_of(of)}, {"figures", figures(of)}};
  if (of.plan.prediction.actions <= of.most_actions) {
    data["film"] = film_data(of);
  } else {
    data["remarks"] = Json::array({"The plan has " + std::to_string(of.plan.prediction.actions) +
                                   " actions, too many to show what happens when."});
  }
  if (of.curve_seconds > 0) {
    data["curve"] = budget_curve(of.question, of.plan, of.curve_seconds);
    const std::string names = joined(data["curve"]["beyond"]);
    if (!names.empty()) {
      data["remarks"].push_back(
          "Time against budget ends at 64 times the plan's budget; these need more: " + names +
          ".");
    }
  }
  if (of.question.options.slots) data["slot"] = of.question.chain.at(0).state;
  const Bytes budget = of.plan.machine.platform.fast;
  // Where the budget has no limit, what the plan takes.
  data["chosen"] = {{"strategy", of.plan.strategy},
                    {"budget", budget == kUnlimited ? of.plan.prediction.peak[0] : budget},
                    {"seconds", of.plan.prediction.seconds},
                    {"bound", of.plan.bound.seconds}};
  if (of.explorer && of.question.chain.is_uniform()) data["explorer"] = explorer_data(of.question);
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
  const PlanQuestion question = question_in(*asked, name);
  const Plan plan = make_plan(question.chain, question.platform, question.options);
  const auto least = least_budget(question.chain, question.platform, question.options);
  Json data = plan_data({.question = question, .plan = plan, .least = least});
  const auto before = json.find("seconds");
  if (before != json.end() && before->is_number()) {
    const double then = before->get<double>();
    if (std::abs(then - plan.prediction.seconds) > 1e-9 * std::abs(then)) {
      data["remarks"].push_back("The file says " + format_seconds(then) +
                                "; this version of ebb plans anew, and finds " +
                                format_seconds(plan.prediction.seconds) + ".");
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
  const std::string strategy = common_strategy(json);
  return {
      {"title", titled("Time against budget", strategy)},
      {"curve",
       {{"lines", Json::array({{{"strategy", strategy.empty() ? "plans of the sweep" : strategy},
                                {"points", points}}})},
        {"bound", bound},
        {"left_out", Json::array()}}}};
}

}  // namespace ebb
