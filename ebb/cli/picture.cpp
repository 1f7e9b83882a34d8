// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/picture.h"

#include <algorithm>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ebb {
namespace {

constexpr std::size_t kMostRows = 60;
constexpr std::size_t kMostNotes = 3;

constexpr char kAdvance = '>';
constexpr char kSaved = '+';
constexpr char kRecord = 'o';
constexpr char kBoth = 'B';
constexpr char kReverse = '<';
constexpr char kDone = '.';

struct Row {
  std::string from;   // where the live state came from
  std::string cells;  // one character per step
  std::vector<std::string> notes;
};

// Turns actions into rows. A row ends when a step would have to be drawn twice in it.
class Painter {
 public:
  Painter(const Platform& platform, std::int64_t steps)
      : platform_(platform), blank_(static_cast<std::size_t>(steps), ' ') {}

  void draw(const Advance& a) {
    start_row();
    for (std::int64_t i = a.from; i < a.to; ++i) cell(i) = kAdvance;
    if (mark_ != ' ') cell(a.from) = std::exchange(mark_, ' ');
  }

  void draw(const Record& a) {
    start_row();
    for (std::int64_t i = a.from; i < a.to; ++i) cell(i) = kRecord;
    mark_ = ' ';
  }

  void draw(const Reverse& a) {
    for (std::int64_t i = a.to - 1; i >= a.from; --i) {
      if (rows_.empty() || (cell(i) != kRecord && cell(i) != ' ')) add_row("tape");
      cell(i) = cell(i) == kRecord ? kBoth : kReverse;
      blank_[static_cast<std::size_t>(i)] = kDone;
    }
    reversed_ = true;
  }

  void draw(const Copy& a) {
    if (a.to == Place::work) {
      next_from_ = std::to_string(a.step) + " " + name(a.from);
    } else if (a.from == Place::work) {
      mark_ = a.to == Place::fast ? (mark_ == ' ' ? kSaved : mark_) : tier_mark(a.to);
      marked_ = a.step;
    } else if (a.item == Item::state && a.from == Place::fast && mark_ != ' ' &&
               marked_ == a.step) {
      mark_ = tier_mark(a.to);  // saved through fast
    } else {
      note((a.item == Item::tape ? "tape " : "") + std::to_string(a.step) + " " + name(a.from) +
           "->" + name(a.to));
    }
  }

  void draw(const Drop&) {}

  const std::vector<Row>& rows() const { return rows_; }

 private:
  static char tier_mark(Place place) {
    return place.tier() < 9 ? static_cast<char>('1' + place.tier()) : '*';
  }

  std::string name(Place place) const {
    return place == Place::fast ? "fast"
                                : platform_.tiers.at(static_cast<std::size_t>(place.tier())).name;
  }

  char& cell(std::int64_t step) { return rows_.back().cells[static_cast<std::size_t>(step)]; }

  void add_row(std::string from) {
    rows_.push_back({std::move(from), blank_, {}});
    reversed_ = false;
  }

  // A forward run opens a row when it starts from a loaded state or follows a reverse.
  void start_row() {
    if (!next_from_.empty()) {
      add_row(std::exchange(next_from_, ""));
    } else if (rows_.empty() || reversed_) {
      add_row(rows_.empty() ? "start" : "");
    }
    if (!notes_.empty()) rows_.back().notes = std::exchange(notes_, {});
  }

  void note(std::string text) {
    (rows_.empty() || !next_from_.empty() ? notes_ : rows_.back().notes).push_back(std::move(text));
  }

  const Platform& platform_;
  std::string blank_;
  std::vector<Row> rows_;
  std::string next_from_;
  std::vector<std::string> notes_;  // for the row to come
  char mark_ = ' ';                 // for the step that runs next, whose state was saved
  std::int64_t marked_ = 0;         // that step
  bool reversed_ = false;
};

void write_ruler(std::int64_t steps, const std::string& margin, std::ostream& out) {
  std::string tens, units;
  for (std::int64_t i = 0; i < steps; ++i) {
    tens += i % 10 == 0 ? static_cast<char>('0' + i / 10) : ' ';
    units += static_cast<char>('0' + i % 10);
  }
  tens.erase(tens.find_last_not_of(' ') + 1);
  if (steps > 10) out << margin << tens << '\n';
  out << margin << units << '\n';
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string joined_notes(const std::vector<std::string>& notes) {
  std::string text;
  for (std::size_t i = 0; i < std::min(notes.size(), kMostNotes); ++i)
    text += (i == 0 ? "  " : ", ") + notes[i];
  if (notes.size() > kMostNotes)
    text += " and " + std::to_string(notes.size() - kMostNotes) + " more";
  return text;
}

// Only the characters that are in the picture.
void write_legend(const std::vector<Row>& rows, const Platform& platform, std::ostream& out) {
  std::string used;
  for (const Row& row : rows) used += row.cells;
  const auto add = [&](char c, const std::string& meaning) {
    if (used.find(c) != std::string::npos) out << "  " << c << "  " << meaning << '\n';
  };
  add(kAdvance, "advance: run the step, keep nothing");
  add(kSaved, "the same, the state before the step saved in fast");
  for (std::size_t i = 0; i < platform.tiers.size() && i < 9; ++i) {
    add(static_cast<char>('1' + i),
        "the same, the state before the step saved in " + platform.tiers[i].name);
  }
  add('*', "the same, the state before the step saved in a tier beyond the ninth");
  add(kRecord, "record: run the step, keep its tape");
  add(kBoth, "record and reverse");
  add(kReverse, "reverse from a tape kept before");
  add(kDone, "already reversed");
}

}  // namespace

bool has_picture(const Plan& plan, std::int64_t steps) {
  return steps >= 1 && steps <= 100 && plan.prediction.actions <= 400;
}

void draw_picture(const Plan& plan, std::int64_t steps, std::ostream& out) {
  const Platform& platform = plan.machine.platform;
  Painter painter(platform, steps);
  const auto cursor = plan.cursor();
  for (Action action; cursor->next(action);) {
    std::visit([&painter](const auto& a) { painter.draw(a); }, action);
  }
  std::size_t width = 4;
  for (const Row& row : painter.rows()) width = std::max(width, row.from.size());

  out << "The schedule, steps across, time down:\n";
  write_ruler(steps, padded("", width + 4), out);
  const std::size_t drawn = std::min(painter.rows().size(), kMostRows);
  for (std::size_t i = 0; i < drawn; ++i) {
    const Row& row = painter.rows()[i];
    std::string line = "  " + padded(row.from, width) + "  " + row.cells + joined_notes(row.notes);
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
  }
  if (drawn < painter.rows().size())
    out << "  ... and " << painter.rows().size() - drawn << " more rows\n";
  write_legend(painter.rows(), platform, out);
}

}  // namespace ebb
