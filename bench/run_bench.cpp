// SPDX-License-Identifier: Apache-2.0
// What running a plan costs beside the steps themselves, and whether transfers hide behind them.
#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <vector>

#include "bench/table.h"
#include "ebb/device/buffer.h"
#include "ebb/ebb.h"
#include "ebb/experiments/stencil_step.h"
#include "ebb/store/store.h"

namespace ebb::bench {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class Work>
double seconds_of(const Work& work) {
  const double start = now();
  work();
  return now() - start;
}

double iterate(Run& run, const StencilStep& step) {
  const std::vector<float> initial = step.initial(), adjoint = step.final_adjoint();
  std::vector<float> final(initial.size()), gradient(initial.size());
  return seconds_of([&] {
    run.forward(initial, final);
    run.backward(adjoint, gradient);
  });
}

// Plain BPTT as one would write it: every tape in one array.
class Loop {
 public:
  explicit Loop(StencilStep& step)
      : step_(step),
        bytes_(step.bytes(0)),
        state_(Ledger(), "", bytes_.state),
        adjoint_(Ledger(), "", bytes_.adjoint),
        scratch_(Ledger(), "", bytes_.scratch),
        tapes_(Ledger(), "", bytes_.tape * step.steps()) {}

  double iterate() {
    const std::vector<float> initial = step_.initial(), adjoint = step_.final_adjoint();
    return seconds_of([&] {
      std::memcpy(state_.data(), initial.data(), 4 * initial.size());
      for (std::int64_t i = 0; i < step_.steps(); ++i) {
        step_.record({i, i + 1, true}, state_.data(), tape(i), scratch_.data());
      }
      std::memcpy(adjoint_.data(), adjoint.data(), 4 * adjoint.size());
      for (std::int64_t i = step_.steps(); i-- > 0;) {
        step_.reverse(i, i + 1, tape(i), adjoint_.data(), scratch_.data());
      }
    });
  }

 private:
  Tapes tape(std::int64_t i) const { return {tapes_.data() + i * bytes_.tape, bytes_.tape}; }

  StencilStep& step_;
  StepBytes bytes_;
  Buffer state_, adjoint_, scratch_, tapes_;
};

Table store_all_table() {
  Table table("store_all through Run against a hand-written loop");
  for (const auto [cells, sweeps] :
       {std::array<std::int64_t, 2>{4096, 8}, {16384, 8}, {65536, 4}}) {
    StencilStep step(1000, cells, sweeps);
    Loop loop(step);
    Run run(step, {.strategy = "store_all"});
    double by_hand = 1e300, by_run = 1e300;
    // In turns, so that both meet the same machine.
    for (int repeat = 0; repeat < 9; ++repeat) {
      by_hand = std::min(by_hand, loop.iterate());
      by_run = std::min(by_run, iterate(run, step));
    }
    const double ratio = by_run / by_hand;
    table.add({{"state", format_bytes(4 * cells)},
               {"step (us)", number_text(1e6 * run.chain().at(0).forward)},
               {"loop (s)", number_text(by_hand)},
               {"run (s)", number_text(by_run)},
               {"run / loop", number_text(ratio)},
               {"goal", goal(ratio <= 1.02, "<= 1.02")}});
  }
  return table;
}

// A step that does nothing: what is left is the run's own work.
class Empty : public Step {
 public:
  explicit Empty(std::int64_t steps) : steps_(steps) {}
  std::int64_t steps() const override { return steps_; }
  StepBytes bytes(std::int64_t) const override { return {.state = 8, .tape = 16, .adjoint = 8}; }
  std::int64_t advance(const StepSpan& span, std::byte*, std::byte*) override { return span.to; }
  void record(const StepSpan&, std::byte*, const Tapes&, std::byte*) override {}
  void reverse(std::int64_t, std::int64_t, const Tapes&, std::byte*, std::byte*) override {}

 private:
  std::int64_t steps_;
};

double least_seconds(Run& run) {
  const std::array<double, 1> in{};
  std::array<double, 1> out{};
  double least = 1e300;
  for (int repeat = 0; repeat < 7; ++repeat) {
    run.forward(in, out);
    run.backward(in, out);
    least = std::min(least, run.report().measured.seconds);
  }
  return least;
}

Table action_table() {
  Table table("An empty step: nanoseconds for each action, the cursor's included");
  struct Case {
    const char* strategy;
    bool tier;
  };
  for (const auto& [strategy, tier] : {Case{"revolve", false},
                                       {"online", false},
                                       {"sqrt", false},
                                       {"msm", false},
                                       {"async", true},
                                       {"disk_revolve", true},
                                       {"pofo", true}}) {
    constexpr std::int64_t steps = 100'000;
    Empty step(steps);
    RunOptions options;
    options.chain = Chain::uniform(steps, {.forward = 1e-6, .record = 1e-6, .backward = 2e-6});
    options.strategy = strategy;
    options.budget = 64'000;
    options.replan_factor = 0;
    if (tier) {
      options.tiers = {null_tier()};
      options.timing_only = true;
      options.platform = Platform{.tiers = {{.name = "null",
                                             .write_rate = 1e9,
                                             .read_rate = 1e9,
                                             .write_latency = 1e-7,
                                             .read_latency = 1e-7}}};
    }
    Run run(step, options);
    const double least = least_seconds(run);
    const Report report = run.report();
    const double each = 1e9 * least / static_cast<double>(report.measured.actions);
    const std::int64_t transfers =
        tier ? report.measured.tiers[0].written.states + report.measured.tiers[0].read.states +
                   report.measured.tiers[0].written.tapes + report.measured.tiers[0].read.tapes
             : 0;
    table.add({{"strategy", strategy},
               {"actions", report.measured.actions},
               {"transfers", transfers},
               {"ns/action", number_text(each)},
               {"goal", goal(each < 200, "< 200")}});
  }
  return table;
}

RunOptions async_options(const Profile& found, std::int64_t steps, std::int64_t interval,
                         const SlowTier& tier) {
  RunOptions how;
  how.strategy = "async";
  how.intervals = {interval};
  how.tiers = {tier};
  how.timing_only = true;
  how.chain = Chain::uniform(steps, found.chain.at(0), found.chain.call());
  how.platform = found.platform;
  how.replan_factor = 0;
  // Tapes of one interval, and states on their way out and in.
  how.budget = found.chain.at(0).tape * (interval + 2) + 12 * found.chain.at(0).state;
  return how;
}

// The interval is the shortest whose steps take longer than a state's transfer, with a margin.
Table hidden_table(const std::string& directory, std::int64_t longest) {
  Table table("async with a file tier against the same run on the null tier");
  constexpr std::int64_t cells = 16384;
  StencilStep probe(1000, cells, 1);
  const Bytes capacity = Bytes{16} << 30;
  const SlowTier file = file_tier(directory, capacity, "disk");
  const Profile found = profile(probe, kUnlimited, {file});
  const double transfer = std::max(found.platform.tiers[0].write_seconds(found.chain.at(0).state),
                                   found.platform.tiers[0].read_seconds(found.chain.at(0).state));
  const auto interval = static_cast<std::int64_t>(
      std::ceil(std::max(32.0, 2 * transfer / found.chain.at(0).forward)));
  double first = 0;
  for (std::int64_t steps = 1000; steps <= longest; steps *= 10) {
    StencilStep step(steps, cells, 1);
    const auto options = [&](const SlowTier& tier) {
      return async_options(found, steps, interval, tier);
    };
    SlowTier null = null_tier("disk");
    null.capacity = capacity;
    double on_null = 1e300, on_file = 1e300;
    Run by_null(step, options(null)), by_file(step, options(file));
    const int repeats = steps <= 100'000 ? 5 : 2;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      on_null = std::min(on_null, iterate(by_null, step));
      on_file = std::min(on_file, iterate(by_file, step));
    }
    const double each = 1e6 * on_file / static_cast<double>(steps);
    if (first == 0) first = each;
    const double ratio = on_file / on_null;
    const Report report = by_file.report();
    table.add(
        {{"steps", steps},
         {"interval", interval},
         {"transfer (us)", number_text(1e6 * transfer)},
         {"null (us/step)", number_text(1e6 * on_null / static_cast<double>(steps))},
         {"file (us/step)", number_text(each)},
         {"waited (%)", number_text(100 * report.measured.stall_seconds / report.measured.seconds)},
         {"on disk", format_bytes(report.measured.peak[1])},
         {"file / null", number_text(ratio)},
         {"against first", number_text(each / first)},
         {"goal",
          goal(ratio <= 1.05 && std::abs(each / first - 1) <= 0.05, "<= 1.05, flat +-5 %")}});
  }
  return table;
}

struct Rates {
  double write = 0, read = 0;  // bytes a second
};

constexpr Bytes kDepth = 8;

Rates store_rates(const SlowTier& tier, Bytes item, Bytes all) {
  constexpr Bytes lanes = kDepth;
  const Buffer memory(Ledger(), "", lanes * item);
  for (Bytes i = 0; i < memory.size(); ++i) memory.data()[i] = static_cast<std::byte>(i * 31);
  Store store({tier}, {{.peak = all, .largest = item, .items = 0, .encode = {}, .decode = {}}},
              Ledger(), memory.at(0, memory.size()));
  std::vector<Store::Slot> slots;
  for (Bytes done = 0; done < all; done += item) slots.push_back(store.add(0, item));
  const auto pass = [&](bool writes) {
    std::array<Store::Ticket, lanes> tickets{};
    return seconds_of([&] {
      for (std::size_t i = 0; i < slots.size(); ++i) {
        const std::size_t lane = i % lanes;
        if (i >= lanes) store.wait(tickets[lane]);
        const auto bytes = memory.at(static_cast<Bytes>(lane) * item, item);
        tickets[lane] = writes ? store.put(0, slots[i], bytes) : store.get(0, slots[i], bytes);
      }
      for (std::size_t i = slots.size() > lanes ? slots.size() - lanes : 0; i < slots.size(); ++i) {
        store.wait(tickets[i % lanes]);
      }
    });
  };
  const double write = pass(true), read = pass(false);
  return {static_cast<double>(all) / write, static_cast<double>(all) / read};
}

// Runs fio once; `how` says what it does. 0 where it does not say.
Rates fio_rates(const std::string& directory, const std::string& how, Bytes item, Bytes all) {
  const std::string command = "fio --name=ebb --directory=" + directory + how +
                              " --bs=" + std::to_string(item) +
                              " --iodepth=" + std::to_string(kDepth) +
                              " --ioengine=io_uring --direct=1 --size=" + std::to_string(all) +
                              " --unlink=1 --fallocate=native --verify_state_save=0"
                              " --output-format=json 2>/dev/null";
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  std::string text;
  std::array<char, 4096> part{};
  while (std::fgets(part.data(), part.size(), pipe) != nullptr) text += part.data();
  ::pclose(pipe);
  const auto json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return {};
  const auto& job = json["jobs"][0];
  return {job["write"]["bw_bytes"].get<double>(), job["read"]["bw_bytes"].get<double>()};
}

Rates best(const Rates& a, const Rates& b) {
  return {std::max(a.write, b.write), std::max(a.read, b.read)};
}

Table disk_table(const std::string& directory) {
  Table table("File tier against fio: same directory, block size and depth 8, direct I/O (MB/s)");
  constexpr Bytes all = Bytes{1} << 30;
  for (const bool uring : {true, false}) {
    if (uring && !has_uring()) continue;
    for (const Bytes item : {Bytes{256} << 10, Bytes{4} << 20}) {
      const SlowTier tier = file_tier(directory, all, "disk",
                                      {.engine = uring ? FileEngine::uring : FileEngine::threads});
      Rates ours, fio, verified;
      for (int repeat = 0; repeat < 3; ++repeat) {
        ours = best(ours, store_rates(tier, item, all));
        fio = best(fio, fio_rates(directory, " --rw=write", item, all));
        fio = best(fio, fio_rates(directory, " --rw=read", item, all));
        // Writes and then reads with a checksum in every block, as the file tier does.
        const char* const checked = " --rw=write --verify=crc32c --do_verify=1";
        verified = best(verified, fio_rates(directory, checked, item, all));
      }
      const auto row = [&](const char* what, double own, double theirs, double with_checksums) {
        const double share = theirs > 0 ? own / theirs : 0;
        table.add({{"engine", uring ? "io_uring" : "threads"},
                   {"item", format_bytes(item)},
                   {"direction", what},
                   {"ebb", number_text(own / 1e6)},
                   {"fio", theirs > 0 ? number_text(theirs / 1e6) : "not here"},
                   {"ebb / fio", number_text(share)},
                   {"fio, crc32c", number_text(with_checksums / 1e6)},
                   {"ebb / that", number_text(with_checksums > 0 ? own / with_checksums : 0)},
                   {"goal", theirs > 0 ? goal(share >= 0.8, ">= 0.8 of fio") : "no fio"}});
      };
      row("write", ours.write, fio.write, verified.write);
      row("read", ours.read, fio.read, verified.read);
    }
  }
  return table;
}

Table prediction_table(const std::string& directory) {
  Table table("Predicted against measured seconds, everything measured by profile()");
  struct Case {
    const char* strategy;
    double share;  // of the memory that storing everything takes
    bool tier;
  };
  StencilStep step(2000, 65536, 4);
  const Bytes all = Run(step, {.strategy = "store_all"}).plan().prediction.peak[0];
  for (const auto& [strategy, share, tier] : {Case{"store_all", 1, false},
                                              {"revolve", 0.02, false},
                                              {"auto", 0.1, false},
                                              {"auto", 0.02, true},
                                              {"async", 0.05, true},
                                              {"disk_revolve", 0.02, true},
                                              {"h_revolve", 0.02, true},
                                              {"pofo", 0.05, true}}) {
    RunOptions options;
    options.strategy = strategy;
    options.budget = static_cast<Bytes>(static_cast<double>(all) * share);
    options.replan_factor = 0;
    if (tier) options.tiers = {file_tier(directory, Bytes{4} << 30)};
    Run run(step, options);
    double least = 1e300;
    for (int repeat = 0; repeat < 3; ++repeat) least = std::min(least, iterate(run, step));
    const double predicted = run.plan().prediction.seconds;
    const double ratio = least / predicted;
    table.add({{"strategy", strategy},
               {"budget", format_bytes(options.budget)},
               {"tier", tier ? "file" : "-"},
               {"forwards/step", number_text(static_cast<double>(run.plan().prediction.forwards) /
                                             static_cast<double>(step.steps()))},
               {"predicted (s)", number_text(predicted)},
               {"measured (s)", number_text(least)},
               {"measured / predicted", number_text(ratio)},
               {"goal", goal(std::abs(ratio - 1) <= 0.1, "within 10 %")}});
  }
  return table;
}

}  // namespace
}  // namespace ebb::bench

int main(int argc, char** argv) {
  using namespace ebb;
  try {
    CLI::App app("What running a plan costs: overheads, hidden transfers, disk speed, predictions");
    std::string directory = std::filesystem::temp_directory_path().string();
    std::string only;
    std::int64_t longest = 1'000'000;
    app.add_option("--directory", directory, "Where files go")->capture_default_str();
    app.add_option("--longest", longest, "Steps of the longest run")->capture_default_str();
    app.add_option("--only", only, "One of: store_all, actions, hidden, disk, prediction");
    CLI11_PARSE(app, argc, argv);
    int missed = 0;
    const auto show = [&](const std::string& name, const auto& make) {
      if (!only.empty() && only != name) return;
      const bench::Table table = make();
      std::cout << table.text() << '\n' << std::flush;
      missed += table.count("missed");
    };
    show("store_all", [] { return bench::store_all_table(); });
    show("actions", [] { return bench::action_table(); });
    show("prediction", [&] { return bench::prediction_table(directory); });
    show("disk", [&] { return bench::disk_table(directory); });
    show("hidden", [&] { return bench::hidden_table(directory, longest); });
    std::cout << "goals missed: " << missed << '\n';
  } catch (const std::exception& error) {
    std::cerr << "run_bench: " << error.what() << '\n';
    return 1;
  }
}
