// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/train_command.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ebb/cli/cli.h"
#include "ebb/cli/heading.h"
#include "ebb/cli/interrupt.h"
#include "ebb/cli/tier_option.h"
#include "ebb/cli/train_plan.h"
#include "ebb/cli/train_text.h"
#include "ebb/cli/view_command.h"
#include "ebb/core/error.h"
#include "ebb/core/json.h"
#include "ebb/core/units.h"
#include "ebb/core/words.h"
#include "ebb/train/train.h"
#include "ebb/view/document.h"

namespace ebb {
namespace {

constexpr const char* kTrainFooter = R"(
Gradients are exact, whatever the budget: the same bits as keeping everything,
on a GPU with the same --chunk.
--strategy truncated:K is not exact; it is there for comparison.

--budget takes bytes (64MiB), a share of what keeping everything takes (5%), or
unlimited.
)";

constexpr const char* kTrainFooterEnd = R"(--config reads a JSON object whose keys are
the names of these options up to save_seconds, with _ for -, and those that
docs/training.md adds; options on the command line win. With --out DIR,
DIR/metrics.jsonl gets a line for each iteration, DIR/model.safetensors the
parameters under PyTorch's names; --view FILE.html draws the metrics. After
Ctrl-C or a kill, --resume DIR continues with the same bits, or with --device
on another kind of device, with other bits. mpirun -n P ebb train ... trains on
P batches at a time.

--plan-only answers before anything is trained: does it fit, how slow is it,
what is where. --find-budget 1.2x answers with the least memory that makes an
iteration at most 1.2 times as long as keeping everything, by what it measures.

Exit codes: 0 done, 2 bad usage or data, 3 does not fit (the least budget is
named), 4 a file or device fails, 130 stopped.

Examples
  ebb train --task adding --cell gru --steps 1000 --budget 5% --lr 2e-3
  ebb train --task fashion-mnist --cell lstm --hidden 128 --epochs 5 --out run
  ebb train --task text --data shakespeare.txt --hidden 512 --budget 32MiB
  ebb train --task qtdb --data DIR --cell alif --hidden 36 --readout leaky
  ebb train --task text --data shakespeare.txt --hidden 512 --device cuda --dtype bf16
  ebb train --task adding --steps 5000 --budget 2% --plan-only
  ebb train --task adding --steps 5000 --find-budget 1.2x
  ebb train --resume run
)";

enum class Kind { text, number, whole, flag };

// An option that is also a key of configuration files.
struct OptionRow {
  const char* heading;
  const char* key;
  Kind kind;
  const char* type;
  const char* help;
};

constexpr OptionRow kRows[] = {
    {"The task", "task", Kind::text, "NAME", ""},
    {"The task", "data", Kind::text, "DIR", "Where the task's files are"},
    {"The task", "steps", Kind::whole, "T", "Steps of a sequence; default the task's own"},
    {"The task", "batch", Kind::whole, "B", "Sequences per batch; default 32"},
    {"The task", "seed", Kind::whole, "N", "Random seed; default 1"},
    {"The net", "cell", Kind::text, "NAME", ""},
    {"The net", "hidden", Kind::whole, "H", "Units of a layer; default 128"},
    {"The net", "layers", Kind::whole, "L", "Layers on top of each other; default 1"},
    {"The net", "readout", Kind::text, "NAME", "linear (default) or leaky, which integrates"},
    {"The net", "dropout", Kind::number, "P", "Share of outputs dropped between layers; default 0"},
    {"The net", "pipelined", Kind::flag, "", "Each layer reads the one below one step later"},
    {"The net", "input_density", Kind::number, "D", "Share of input weights that exist; default 1"},
    {"The net", "recurrent_density", Kind::number, "D",
     "Share of recurrent weights that exist; default 1"},
    {"The net", "weight_scale", Kind::number, "F", "Scale the initial weights by F; default 1"},
    {"The net", "forget_bias", Kind::number, "F",
     "Initial bias of the gate that keeps the memory,\nlarger for longer memory: "},
    {"The net", "dtype", Kind::text, "NAME",
     "float (default) or double, or on a GPU what is\nmultiplied: tf32, bf16 or f16"},
    {"The net", "chunk", Kind::whole, "K",
     "Time steps that a plan counts as one; default\nchosen from the sizes and whether units "
     "spike, and\non a GPU from the budget"},
    {"Spiking cells", "surrogate", Kind::text, "NAME", ""},
    {"Spiking cells", "sharpness", Kind::number, "K", "Sharpness of the surrogate"},
    {"Spiking cells", "threshold", Kind::number, "F", "Firing threshold"},
    {"Spiking cells", "tau_mem", Kind::number, "T", "Time constant of membranes, in steps"},
    {"Spiking cells", "tau_syn", Kind::number, "T", "Time constant of synaptic currents, in steps"},
    {"Spiking cells", "tau_adp", Kind::number, "T", "Time constant of adaptation, in steps"},
    {"Spiking cells", "beta", Kind::number, "F", "alif: strength of adaptation"},
    {"Spiking cells", "synaptic", Kind::flag, "", "lif: inputs go through a decaying current"},
    {"Spiking cells", "hard_reset", Kind::flag, "", "A spike sets the membrane to 0"},
    {"Spiking cells", "attached_reset", Kind::flag, "", "Gradients go through the reset"},
    {"Spiking cells", "train_tau", Kind::flag, "", "Train time constants, beta, a and b"},
    {"Spiking cells", "train_threshold", Kind::flag, "", "Train thresholds"},
    {"Spiking cells", "gradient_threshold", Kind::number, "F", "No gradient for membranes below F"},
    {"Spiking cells", "max_activity", Kind::number, "D",
     "Largest share of units whose output is used at a step"},
    {"The memory", "device", Kind::text, "NAME",
     "cpu (default), cuda, cuda:N, or auto: a GPU if one\nis there and runs the net"},
    {"The memory", "budget", Kind::text, "BYTES",
     "Fast memory: bytes, a share, or unlimited\n(default)"},
    {"The memory", "host_budget", Kind::text, "BYTES",
     "On a GPU: host memory for states that are moved off\nthe GPU; default 0"},
    {"The memory", "strategy", Kind::text, "NAME",
     "auto (default), a name from ebb plan --strategies,\nor truncated:K"},
    {"The memory", "threads", Kind::whole, "N", "Default all processors"},
    {"Learning", "iterations", Kind::whole, "N", "Default 1000, without --epochs"},
    {"Learning", "epochs", Kind::whole, "N", "Passes over the samples, instead of --iterations"},
    {"Learning", "optimiser", Kind::text, "NAME", "adam (default), adamw or sgd"},
    {"Learning", "lr", Kind::number, "F", "Learning rate; default 1e-3"},
    {"Learning", "schedule", Kind::text, "WORD",
     "constant (default), cosine, linear, step:K,F; and\n,warmup=N"},
    {"Learning", "momentum", Kind::number, "F", "Momentum of sgd; default 0"},
    {"Learning", "weight_decay", Kind::number, "F", "Weight decay; default 0, for adamw 0.01"},
    {"Learning", "clip", Kind::number, "F",
     "Clip the gradient's norm to F; 0 (default): no clipping"},
    {"Learning", "evaluate", Kind::whole, "N", "Test every N iterations; default at the end"},
    {"Learning", "test_samples", Kind::whole, "N", "Samples per test, at most; default 1000"},
    {"The files", "save_seconds", Kind::number, "S", "Seconds between checkpoints; default 30"},
};

struct Words {
  std::map<std::string, std::string> given;  // by key
  std::map<std::string, bool> flags;
  std::vector<std::string> tiers;
  std::string config, out, resume, patience, view;
  TrainPlanWords plan;
  bool json = false, data_changed_ok = false, save_failure_ok = false;
};

std::string option_of(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

Json value_of(const OptionRow& row, const std::string& word) {
  const std::string option = option_of(row.key);
  if (row.kind == Kind::text) {
    if (parse_json(json_string(word), option) != Json(word)) {
      fail(ErrorCode::invalid_argument, option, " is '", shown(word), "'; it must be UTF-8 text");
    }
    return word;
  }
  if (row.kind == Kind::whole) {
    return read_count(option, word, needs_one(row.key) ? 1 : 0, 1'000'000'000'000);
  }
  return read_number(option, word);
}

std::string read_config(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    fail(ErrorCode::invalid_argument, "--config: '", shown(path),
         "' is a directory; give a JSON file");
  }
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) fail(ErrorCode::io, "--config: cannot read '", shown(path), "'");
  return text.str();
}

// Some words are free only as long as they leave the numbers alone.
void check_change(const TrainOptions& before, const TrainOptions& now) {
  if (truncation(before) != truncation(now)) {
    fail(ErrorCode::invalid_argument, "--strategy is '", now.strategy, "', the checkpoint's '",
         before.strategy, "'; where gradients are cut off cannot change when training continues");
  }
  const bool shaped = now.schedule.shape == Schedule::Shape::cosine ||
                      now.schedule.shape == Schedule::Shape::linear;
  if (shaped && (before.iterations != now.iterations || before.epochs != now.epochs)) {
    fail(ErrorCode::invalid_argument, "the schedule ", to_text(now.schedule),
         " depends on the number of iterations, which cannot change when training continues");
  }
}

void check_words(const Words& words) {
  if (!words.resume.empty() && (!words.config.empty() || !words.out.empty())) {
    fail(ErrorCode::invalid_argument,
         "--resume takes the options and the directory of the checkpoint; leave out ",
         words.config.empty() ? "--out" : "--config");
  }
  if (words.resume.empty() && words.data_changed_ok) {
    fail(ErrorCode::invalid_argument,
         "--data-changed-ok is for --resume; a new run takes any data");
  }
  if (words.save_failure_ok && words.out.empty() && words.resume.empty()) {
    fail(ErrorCode::invalid_argument,
         "--save-failure-ok is for runs that are saved; say where with --out");
  }
  if (!words.view.empty() && words.plan.are_given()) {
    fail(ErrorCode::invalid_argument,
         "--view shows what training measured; leave out --plan-only and --find-budget");
  }
  if (!words.view.empty() && words.out.empty() && words.resume.empty()) {
    fail(ErrorCode::invalid_argument,
         "--view shows the metrics of a run that is saved; say where with --out");
  }
  if (!words.view.empty()) check_page_path("--view", words.view);
  if (!words.plan.find_budget.empty() && words.given.contains("budget")) {
    fail(ErrorCode::invalid_argument,
         "--find-budget and --budget contradict each other: --find-budget says which one to give");
  }
}

TrainOptions options_of(const Words& words, const std::optional<Checkpoint>& from,
                        std::ostream& err) {
  Json json = Json::object();
  std::optional<TrainOptions> before;
  if (from) {
    before = checkpoint_options(*from, words.resume);
    json = parse_json(to_json(*before), words.resume);
  } else if (!words.config.empty()) {
    json = parse_json(read_config(words.config), words.config);
    if (!json.is_object()) options_from_json(json.dump(), words.config);
    if (json.contains("grain")) {
      err << "ebb train: " << shown(words.config) << ": grain is called chunk now\n";
    }
  }
  for (const OptionRow& row : kRows) {
    const auto word = words.given.find(row.key);
    const auto flag = words.flags.find(row.key);
    const bool flagged = flag != words.flags.end() && flag->second;
    if (word == words.given.end() && !flagged) continue;
    if (from && !is_free_option(row.key)) {
      fail(ErrorCode::invalid_argument, option_of(row.key),
           " cannot be changed when training continues; start anew, or leave it out");
    }
    json[row.key] = flagged ? Json(true) : value_of(row, word->second);
    // One of the two in words wins over the other in a file.
    const std::string_view key = row.key;
    if (key == "epochs" && !words.given.contains("iterations")) json.erase("iterations");
    if (key == "iterations" && !words.given.contains("epochs")) json.erase("epochs");
  }
  const std::string what = words.config.empty() ? "options" : words.config;
  TrainOptions options = options_from_json(json.dump(), what);
  check_options(options);
  if (before) check_change(*before, options);
  return options;
}

void answer(const Words& words, std::ostream& out, std::ostream& err) {
  check_words(words);
  std::signal(SIGPIPE, SIG_IGN);  // a reader that has gone is an error of the write
  RankOptions together;
  if (!words.patience.empty()) together.patience = read_number("--patience", words.patience);
  Ranks ranks(together);
  try {
    TrainSettings settings;
    settings.out = words.resume.empty() ? words.out : words.resume;
    settings.data_changed_ok = words.data_changed_ok;
    std::optional<RunLock> lock;
    std::optional<Checkpoint> from;
    if (!words.resume.empty()) {
      if (!words.plan.are_given()) settings.lock = &lock.emplace(settings.out, true, ranks);
      from = open_checkpoint(settings.out);
    }
    const TrainOptions options = options_of(words, from, err);
    settings.tiers = slow_tiers(parse_real_tiers(words.tiers));
    if (words.plan.are_given()) {
      answer_train_plan(words.plan, {options, settings, std::move(from), words.json}, ranks, out,
                        err);
      return;
    }
    Interrupt interrupt;
    settings.stop = interrupt.token();
    TrainText text(options, words.json, out, err);
    const bool speaks = ranks.rank() == 0;
    if (speaks) {
      // Where the reader is gone, training ends as by Ctrl-C: with a checkpoint.
      settings.planned = [&](const TrainPlan& plan) {
        text.plan(plan);
        if (!out) interrupt.stop();
      };
      settings.planned_again = [&](const TrainPlan& plan, const WrongPrediction& wrong) {
        text.planned_again(plan, wrong);
        if (!out) interrupt.stop();
      };
      settings.line = [&](const TrainLine& line) {
        text.line(line);
        if (!out) interrupt.stop();
      };
    }
    if (words.save_failure_ok) {
      settings.save_failed = [&err](const std::string& why) {
        err << "ebb train: " << why << "; training continues\n" << std::flush;
      };
    }
    const TrainResult result =
        from ? train(options, settings, ranks, std::move(*from)) : train(options, settings, ranks);
    if (speaks) text.result(result, settings.out.string());
    if (speaks && !words.view.empty() && result.iterations > 0) {
      write_page("--view", words.view, file_page(settings.out));
    }
    if (speaks && result.stopped && !out) {
      fail(ErrorCode::io, "the output cannot be written; stopped after ", result.iterations,
           " iterations", settings.out.empty() ? "" : "; continue with ebb train --resume ",
           settings.out.string());
    }
    if (result.stopped && speaks)
      fail(ErrorCode::cancelled, "stopped after ", result.iterations, " iterations");
  } catch (const Error& error) {
    if (ranks.size() > 1 && error.code() != ErrorCode::cancelled) {
      err << "ebb train: process " << ranks.rank() << " of " << ranks.size() << ": " << error.what()
          << "; all are ended\n"
          << std::flush;
      ranks.end_all(exit_code(error.code()));
    }
    throw;
  }
}

// What cells take if nothing is given: "1 (egru 0.1)". `value` is empty for a cell that has none.
template <class Value>
std::string defaults(Value value) {
  std::string usual, others;
  for (const CellRow& cell : cells()) {
    const std::string own = value(cell);
    if (usual.empty()) usual = own;
    if (own.empty() || own == usual) continue;
    others += (others.empty() ? "" : ", ") + cell.name + " " + own;
  }
  return usual + (others.empty() ? "" : " (" + others + ")");
}

std::string help_of(const OptionRow& row) {
  const auto listed = [](const auto& rows) {
    std::string text;
    for (const auto& own : rows) text += (text.empty() ? "" : "\n") + own.name + ": " + own.what;
    return text;
  };
  const std::string_view key = row.key;
  if (key == "task") return listed(tasks()) + "\nDefault adding";
  if (key == "cell") {
    std::vector<CellRow> own;
    for (const CellRow& cell : cells()) {
      if (!cell.is_readout) own.push_back(cell);
    }
    return listed(own) + "\nDefault lstm";
  }
  if (key == "surrogate") {
    return listed(surrogates()) + "\nDefault " +
           defaults([](const CellRow& cell) { return cell.surrogate; });
  }
  if (key == "forget_bias") {
    std::string names;
    for (const CellRow& cell : cells()) {
      if (cell.has_forget_bias) names += (names.empty() ? "" : ", ") + cell.name;
    }
    return row.help + names;
  }
  const std::string own = defaults([key](const CellRow& cell) -> std::string {
    const auto found = std::ranges::find(cell.parameters, key, &UnitParameter::name);
    return found == cell.parameters.end() ? "" : format_number(found->value);
  });
  return row.help + (own.empty() ? "" : "; default " + own);
}

}  // namespace

Command declare_train(CLI::App& app) {
  const auto words = std::make_shared<Words>();
  for (const OptionRow& row : kRows) {
    Heading heading(app, row.heading);
    const std::string name = option_of(row.key);
    if (row.kind == Kind::flag) {
      heading.flag(name, words->flags[row.key], row.help);
      continue;
    }
    heading.option(
        name, [words, key = row.key](const std::string& word) { words->given[key] = word; },
        row.type, help_of(row));
  }
  Heading memory(app, "The memory");
  memory.options("--tier", words->tiers, "NAME:KIND,...",
                 "A slow tier of this machine, nearest first; repeat\nfor more");
  declare_train_plan(memory, words->plan);
  Heading files(app, "The files");
  files.option("--config", words->config, "FILE", "Options as a JSON object");
  files.option("--out", words->out, "DIR", "Where checkpoints and metrics go; default nowhere");
  files.option("--resume", words->resume, "DIR", "Continue from the checkpoint in DIR");
  files.option(
      "--view", words->view, "FILE.html",
      "At the end, write a page for a browser: loss,\nmeasure and gradients over the iterations");
  files.flag("--data-changed-ok", words->data_changed_ok,
             "Continue with data that are not the checkpoint's");
  files.flag("--save-failure-ok", words->save_failure_ok,
             "If a checkpoint or metrics cannot be written, warn,\ncontinue and try again later");
  Heading processes(app, "Several processes");
  processes.option(
      "--patience", words->patience, "S",
      "Seconds to wait for a process that does not respond\nbefore all end; default 600, "
      "0: forever");
  Heading output(app, "The answer");
  output.flag("--json", words->json, "One JSON object a line: plan, iterations, result");
  set_footer(app, kTrainFooter + real_tier_sentence() + kTrainFooterEnd);
  return [words](std::ostream& out, std::ostream& err) { answer(*words, out, err); };
}

}  // namespace ebb
