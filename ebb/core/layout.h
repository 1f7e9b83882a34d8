// SPDX-License-Identifier: Apache-2.0
// Text laid out for a terminal: labelled lines and tables. What they say is left to others.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace ebb {

// Lines of "label  text", the label only where it changes.
class Lines {
 public:
  explicit Lines(std::ostream& out) : out_(out) {}
  void add(std::string_view label, const std::string& text);

 private:
  std::ostream& out_;
  std::string last_;
};

// Columns padded to their widest cell; the first row says how many there are. A row with fewer ends
// with a text that reaches over the columns left.
void write_table(const std::vector<std::vector<std::string>>& rows, std::ostream& out);

}  // namespace ebb
