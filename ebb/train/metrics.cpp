// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "ebb/core/error.h"
#include "ebb/core/json.h"
#include "ebb/store/file.h"
#include "ebb/train/durable_file.h"

namespace ebb {
namespace {

// Whether it is a line of those iterations. After a loss of power there may be anything.
bool stays(const Json& json, std::int64_t last) {
  if (!json.is_object()) return false;
  const auto iteration = json.find("iteration");
  return last >= 0 && iteration != json.end() && iteration->is_number_unsigned() &&
         iteration->get<std::uint64_t>() <= static_cast<std::uint64_t>(last);
}

struct EarlierLines {
  std::string text;
  double seconds = 0;  // of the last line
};
EarlierLines cut(std::string_view text, std::int64_t last) {
  EarlierLines kept;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    const std::string_view line = text.substr(0, end);
    const Json json = Json::parse(line.begin(), line.end(), nullptr, false);
    if (stays(json, last)) {
      kept.text.append(text.substr(0, end + 1));
      const auto seconds = json.find("seconds");
      if (seconds != json.end() && seconds->is_number()) kept.seconds = seconds->get<double>();
    }
    text.remove_prefix(end + 1);
  }
  return kept;
}

std::string line_of(const Metrics& metrics) {
  Json line{{"iteration", metrics.iteration},
            {"split", metrics.split == Split::train ? "train" : "test"},
            {"loss", metrics.loss}};
  if (!metrics.metric.empty()) {
    for (const char* taken :
         {"iteration", "split", "loss", "lr", "gradient_norm", "seconds", "peak_bytes"}) {
      if (metrics.metric == taken) {
        fail(ErrorCode::invalid_argument, "metrics: the metric is named '", taken,
             "', which is the name of something else in each line");
      }
    }
    line[metrics.metric] = metrics.value;
  }
  if (metrics.lr) line["lr"] = *metrics.lr;
  if (metrics.gradient_norm) line["gradient_norm"] = *metrics.gradient_norm;
  line["seconds"] = metrics.seconds;
  if (metrics.peak_bytes) line["peak_bytes"] = *metrics.peak_bytes;
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

int open_for_append(const std::filesystem::path& path) {
  const int fd = file_calls().open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) fail_file(path, "opened", errno);
  return fd;
}

}  // namespace

struct MetricsFile::Open {
  explicit Open(std::filesystem::path p) : path(std::move(p)), file(open_for_append(path)) {
    bytes = ::lseek(file.get(), 0, SEEK_END);
    if (bytes < 0) fail_file(path, "opened", errno);
  }

  std::filesystem::path path;
  Descriptor file;
  Bytes bytes = 0;
};

MetricsFile::MetricsFile(const std::filesystem::path& directory, std::int64_t last) {
  const std::filesystem::path path = directory / "metrics.jsonl";
  if (file_exists(path)) {
    const std::vector<std::byte> bytes = read_file(path);
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const EarlierLines kept = cut(text, last);
    if (kept.text != text) replace_file(path, kept.text);
    seconds_ = kept.seconds;
  }
  open_ = std::make_unique<Open>(path);
}

MetricsFile::~MetricsFile() = default;

void MetricsFile::append(const Metrics& metrics) {
  const std::string line = line_of(metrics);
  std::string_view rest = line;
  while (!rest.empty()) {
    // The file is open for appending, so that the place does not matter.
    const ssize_t done =
        file_calls().pwrite(open_->file.get(), rest.data(), rest.size(), open_->bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      const int error = done < 0 ? errno : EIO;
      // Half a line would spoil the next one.
      // What cannot be taken back is found when the run goes on, and the first error is what counts.
      [[maybe_unused]] const int taken_back = ::ftruncate(open_->file.get(), open_->bytes);
      fail_file(open_->path, "written", error);
    }
    rest.remove_prefix(static_cast<std::size_t>(done));
  }
  open_->bytes += static_cast<Bytes>(line.size());
}

void MetricsFile::sync() {
  if (::fsync(open_->file.get()) != 0) fail_file(open_->path, "written", errno);
}

}  // namespace ebb
