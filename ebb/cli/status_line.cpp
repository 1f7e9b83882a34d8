// SPDX-License-Identifier: Apache-2.0
#include "ebb/cli/status_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>

namespace ebb {
namespace {

constexpr const char* kClear = "\r\x1b[K";

std::size_t terminal_width() {
  winsize size{};
  constexpr std::size_t usual = 80;
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : usual;
}

}  // namespace

StatusLine::StatusLine(std::ostream& err)
    : err_(err), shown_(&err == &std::cerr && ::isatty(STDERR_FILENO) == 1) {}

StatusLine::~StatusLine() {
  if (shown_) err_ << kClear << std::flush;
}

void StatusLine::say(const std::string& text) {
  if (shown_) err_ << kClear << text.substr(0, terminal_width() - 1) << std::flush;
}

}  // namespace ebb
