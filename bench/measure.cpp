// SPDX-License-Identifier: Apache-2.0
#include "bench/measure.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <stdexcept>
#include <string>

namespace ebb::bench {
namespace {

// All that comes through the pipe until its other end closes; nullopt when that takes too long.
std::optional<std::string> read_all(int pipe, double limit) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(limit);
  std::string text;
  std::array<char, 4096> block{};
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd ready{pipe, POLLIN, 0};
    if (left.count() <= 0 || poll(&ready, 1, static_cast<int>(left.count())) <= 0) return {};
    const ssize_t got = read(pipe, block.data(), block.size());
    if (got <= 0) return text;
    text.append(block.data(), static_cast<std::size_t>(got));
  }
}

void write_all(int pipe, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t put = write(pipe, text.data() + done, text.size() - done);
    if (put <= 0) return;
    done += static_cast<std::size_t>(put);
  }
}

}  // namespace

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double least_seconds(const std::function<void()>& work, int runs, double enough) {
  const double begin = cpu_seconds();
  double least = 0;
  for (int run = 0; run < runs; ++run) {
    const double start = cpu_seconds();
    work();
    const double end = cpu_seconds();
    least = run == 0 ? end - start : std::min(least, end - start);
    if (end - begin > enough) break;
  }
  return least;
}

Child in_child(const std::function<Json()>& work, double limit) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) throw std::runtime_error("pipe failed");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    close(ends[0]);
    write_all(ends[1], work().dump());
    _exit(0);
  }
  close(ends[1]);
  const std::optional<std::string> text = read_all(ends[0], limit);
  close(ends[0]);
  if (!text) kill(child, SIGKILL);
  int status = 0;
  rusage used{};
  wait4(child, &status, 0, &used);
  Child out;
  out.peak_mib = static_cast<double>(used.ru_maxrss) / 1024;
  if (text && WIFEXITED(status) && WEXITSTATUS(status) == 0) out.result = Json::parse(*text);
  return out;
}

}  // namespace ebb::bench
