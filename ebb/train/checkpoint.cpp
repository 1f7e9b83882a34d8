// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/checkpoint.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "ebb/core/checksum.h"
#include "ebb/core/error.h"
#include "ebb/train/checkpoint_index.h"
#include "ebb/train/durable_file.h"
#include "ebb/train/run_lock.h"
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

[[noreturn]] void fail_missing(const fs::path& directory) {
  fail(ErrorCode::io, "checkpoint: '", directory.string(), "' has no ", kIndexFile,
       "; it is not a checkpoint, or none was finished");
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
                          std::span<const TensorView> tensors, TensorNotes notes) {
  NewFile file(directory / name);
  notes["format"] = "pt";  // PyTorch's readers of models look for it
  write_safetensors(tensors, notes,
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
Safetensors open_part(const fs::path& directory, const CheckpointFile& file) {
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
  return open_safetensors(static_cast<std::size_t>(file.bytes), read, path);
}

CheckpointIndex index_of(const fs::path& directory, const std::string& text) {
  try {
    return parse_index(text, (directory / kIndexFile).string());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    fail(ErrorCode::io, "checkpoint: damaged: ", error.what());
  }
}

Checkpoint open_index(const fs::path& directory, const std::string& text, bool with_optimiser) {
  CheckpointIndex index = index_of(directory, text);
  try {
    Checkpoint checkpoint;
    checkpoint.iteration = index.iteration;
    checkpoint.seed = index.seed;
    checkpoint.options = std::move(index.options);
    checkpoint.data = index.data;
    Safetensors model = open_part(directory, index.model);
    checkpoint.model = std::move(model.tensors);
    checkpoint.notes = std::move(model.notes);
    if (with_optimiser) checkpoint.optimiser = open_part(directory, index.optimiser).tensors;
    return checkpoint;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    fail(ErrorCode::io, "checkpoint: damaged: ", error.what());
  }
}

}  // namespace

void check_has_checkpoint(const fs::path& directory) {
  check_directory(directory);
  if (!file_exists(directory / kIndexFile)) fail_missing(directory);
}

std::optional<std::int64_t> saved_iteration(const fs::path& directory) {
  const std::optional<std::string> text = read_index(directory);
  if (!text) return std::nullopt;
  return index_of(directory, *text).iteration;
}

void save_checkpoint(const fs::path& directory, const Checkpoint& checkpoint) {
  check_directory(directory);
  save_checkpoint(RunLock(directory), checkpoint);
}

void save_checkpoint(const RunLock& lock, const Checkpoint& checkpoint) {
  const fs::path& directory = lock.directory();
  if (checkpoint.iteration < 0) {
    fail(ErrorCode::invalid_argument, "checkpoint: iteration ", checkpoint.iteration,
         "; it must be 0 or more");
  }
  const std::int64_t generation = prepare(directory);
  CheckpointIndex index{
      checkpoint.iteration, checkpoint.seed, checkpoint.options, checkpoint.data, {}, {}};
  const std::string model = generation_file(kModel, generation);
  const std::string optimiser = generation_file(kOptimiser, generation);
  try {
    index.model = write_part(directory, model, checkpoint.model, checkpoint.notes);
    index.optimiser = write_part(directory, optimiser, checkpoint.optimiser, {});
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

namespace {

Checkpoint open_whole(const fs::path& directory, bool with_optimiser) {
  check_directory(directory);
  for (std::optional<std::string> text = read_index(directory); text;) {
    try {
      return open_index(directory, *text, with_optimiser);
    } catch (const Error&) {
      // Another process may have saved meanwhile and removed what this train.json names.
      std::optional<std::string> now = read_index(directory);
      if (now == text) throw;
      text = std::move(now);
    }
  }
  fail_missing(directory);
}

Checkpoint read_in(Checkpoint checkpoint) {
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

}  // namespace

Checkpoint open_checkpoint(const fs::path& directory) { return open_whole(directory, true); }
Checkpoint load_checkpoint(const fs::path& directory) {
  return read_in(open_whole(directory, true));
}
Checkpoint load_model(const fs::path& directory) { return read_in(open_whole(directory, false)); }

}  // namespace ebb
