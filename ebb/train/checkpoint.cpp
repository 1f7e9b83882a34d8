// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/checkpoint.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include "ebb/core/checksum.h"
#include "ebb/core/error.h"
#include "ebb/train/checkpoint_index.h"
#include "ebb/train/durable_file.h"
#include "ebb/train/safetensors_header.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPlainModel = "model.safetensors";
constexpr std::size_t kPiece = 1 << 20;

void check_directory(const fs::path& directory) {
  std::error_code ignored;
  if (fs::is_directory(directory, ignored)) return;
  fail(ErrorCode::io, "checkpoint: there is no directory '", directory.string(), "'");
}

std::string unfinished(std::string_view name) {
  return std::string(name) + std::string(kUnfinished);
}

// nothing: there is no train.json.
std::optional<std::string> read_index(const fs::path& directory) {
  const fs::path path = directory / kIndexFile;
  if (!file_exists(path)) return std::nullopt;
  const std::vector<std::byte> bytes = read_file(path);
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// Kept until the descriptor is closed, also by the end of the process.
int lock(const fs::path& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail_file(directory, "opened", errno);
  // Not every file system has locks; one process at a time is then left to the users.
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return fd;
  ::close(fd);
  fail(ErrorCode::io, "checkpoint: another process is saving into '", directory.string(),
       "'; give each run a directory of its own");
}

bool is_ours(std::string_view name) {
  return generation_of(kModel, name) > 0 || generation_of(kOptimiser, name) > 0 ||
         name == unfinished(kIndexFile) || name == unfinished(kPlainModel);
}

// Removes what no checkpoint needs; what cannot be removed now, the next save tries again.
void clean(const fs::path& directory, const CheckpointIndex& keep) {
  std::error_code ignored;
  for (const std::string& name : names_in(directory)) {
    if (!is_ours(name) || name == keep.model.name || name == keep.optimiser.name) continue;
    fs::remove(directory / name, ignored);
  }
}

// nothing: it cannot be read.
std::optional<CheckpointIndex> understood(const std::string& text) {
  try {
    return parse_index(text, kIndexFile);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Removes leftovers and returns the number for the next generation.
std::int64_t prepare(const fs::path& directory) {
  const std::optional<std::string> text = read_index(directory);
  const auto index = text ? understood(*text) : CheckpointIndex{};
  // A train.json that cannot be read may still be mended by hand, so nothing is removed yet then.
  if (index) clean(directory, *index);
  std::int64_t last = 0;
  for (const std::string& name : names_in(directory)) {
    last = std::max({last, generation_of(kModel, name), generation_of(kOptimiser, name)});
  }
  return last + 1;
}

CheckpointFile write_part(const fs::path& directory, const std::string& name,
                          std::span<const TensorView> tensors) {
  NewFile file(directory / name);
  // PyTorch's readers of models look for this note.
  write_safetensors(tensors, {{"format", "pt"}},
                    [&file](std::span<const std::byte> bytes) { file.write(bytes); });
  file.sync();
  return {name, file.bytes(), file.checksum()};
}

void give_plain_name(const fs::path& directory, const std::string& model) {
  const fs::path beside = directory / unfinished(kPlainModel);
  std::error_code error;
  fs::remove(beside, error);
  fs::create_hard_link(directory / model, beside, error);
  if (error) {
    const std::vector<std::byte> bytes = read_file(directory / model);
    NewFile copy(beside);
    copy.write(bytes);
    copy.sync();
  }
  rename_file(beside, directory / kPlainModel);
}

// In pieces, since the file may be as large as what training holds.
std::uint32_t checksum_of(const OldFile& file) {
  std::vector<std::byte> piece(kPiece);
  std::uint32_t checksum = 0;
  const auto size = static_cast<std::size_t>(file.bytes());
  for (std::size_t at = 0; at < size; at += kPiece) {
    const std::span<std::byte> part = std::span(piece).first(std::min(kPiece, size - at));
    file.read(at, part);
    checksum = crc32c(part, checksum);
  }
  return checksum;
}

// Throws Error(io) that names the file unless it is the one that belongs here. The tensors stay in it.
std::vector<TensorView> open_part(const fs::path& directory, const CheckpointFile& file) {
  const std::string path = (directory / file.name).string();
  const auto opened = std::make_shared<const OldFile>(path);
  if (opened->bytes() != file.bytes) {
    fail(ErrorCode::io, "checkpoint: '", path, "' is damaged: it has ", opened->bytes(),
         " bytes, and ", kIndexFile, " says ", file.bytes);
  }
  if (checksum_of(*opened) != file.checksum) {
    fail(ErrorCode::io, "checkpoint: '", path, "' is damaged, or not the one that ", kIndexFile,
         " belongs to: its checksum is another");
  }
  const auto read = [opened](std::size_t from, std::span<std::byte> to) { opened->read(from, to); };
  return open_safetensors(static_cast<std::size_t>(file.bytes), read, path).tensors;
}

Checkpoint open_index(const fs::path& directory, const std::string& text) {
  const std::string what = (directory / kIndexFile).string();
  try {
    CheckpointIndex index = parse_index(text, what);
    Checkpoint checkpoint;
    checkpoint.iteration = index.iteration;
    checkpoint.seed = index.seed;
    checkpoint.options = std::move(index.options);
    checkpoint.model = open_part(directory, index.model);
    checkpoint.optimiser = open_part(directory, index.optimiser);
    return checkpoint;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    fail(ErrorCode::io, "checkpoint: damaged: ", error.what());
  }
}

}  // namespace

void save_checkpoint(const fs::path& directory, const Checkpoint& checkpoint) {
  check_directory(directory);
  if (checkpoint.iteration < 0) {
    fail(ErrorCode::invalid_argument, "checkpoint: iteration ", checkpoint.iteration,
         "; it must be 0 or more");
  }
  const Descriptor locked(lock(directory));
  const std::int64_t generation = prepare(directory);
  CheckpointIndex index{checkpoint.iteration, checkpoint.seed, checkpoint.options, {}, {}};
  const std::string model = generation_file(kModel, generation);
  const std::string optimiser = generation_file(kOptimiser, generation);
  try {
    index.model = write_part(directory, model, checkpoint.model);
    index.optimiser = write_part(directory, optimiser, checkpoint.optimiser);
    const std::string text = to_text(index);
    sync_directory(directory);
    replace_file(directory / kIndexFile, text);
  } catch (const Error& error) {
    // Once train.json names them they are needed, even if the last sync went wrong.
    if (read_index(directory).value_or("").find(model) == std::string::npos) {
      std::error_code ignored;
      fs::remove(directory / model, ignored);
      fs::remove(directory / optimiser, ignored);
    }
    if (error.code() != ErrorCode::io) throw;
    fail(ErrorCode::io, "checkpoint of iteration ", checkpoint.iteration,
         " is not saved: ", error.what(), "; the one before it, if any, is as it was");
  }
  give_plain_name(directory, model);
  clean(directory, index);
}

Checkpoint open_checkpoint(const fs::path& directory) {
  check_directory(directory);
  for (std::optional<std::string> text = read_index(directory); text;) {
    try {
      return open_index(directory, *text);
    } catch (const Error&) {
      // Another process may have saved meanwhile and removed what this train.json names.
      std::optional<std::string> now = read_index(directory);
      if (now == text) throw;
      text = std::move(now);
    }
  }
  fail(ErrorCode::io, "checkpoint: '", directory.string(), "' has no ", kIndexFile,
       "; it is not a checkpoint, or none was finished");
}

Checkpoint load_checkpoint(const fs::path& directory) {
  Checkpoint checkpoint = open_checkpoint(directory);
  auto held = std::make_shared<std::vector<std::vector<std::byte>>>();
  for (std::vector<TensorView>* const part : {&checkpoint.model, &checkpoint.optimiser}) {
    for (TensorView& tensor : *part) {
      const Bytes bytes = tensor_bytes(tensor.type, tensor.shape).value_or(0);
      held->emplace_back(static_cast<std::size_t>(bytes));
      tensor.read(held->back());
      tensor.bytes = held->back();
      tensor.read = {};
    }
  }
  checkpoint.held = std::move(held);
  return checkpoint;
}

}  // namespace ebb
