// SPDX-License-Identifier: Apache-2.0
// One line that says what is being done, on a terminal only.
#pragma once

#include <iosfwd>
#include <string>

namespace ebb {

// Writes to `err` if that is the program's standard error and a terminal, else nothing; the line is
// gone when the object is.
class StatusLine {
 public:
  explicit StatusLine(std::ostream& err);
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  ~StatusLine();

  // Replaces the line; cut to the terminal's width.
  void say(const std::string& text);
  bool is_shown() const { return shown_; }

 private:
  std::ostream& err_;
  bool shown_;
};

}  // namespace ebb
