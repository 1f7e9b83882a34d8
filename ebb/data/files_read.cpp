// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/files_read.h"

#include <string>
#include <utility>

#include "ebb/core/checksum.h"

namespace ebb {
namespace {

constexpr std::size_t kPieces = 4096, kPiece = std::size_t{64} << 10;

thread_local FilesRead* listening = nullptr;

std::uint32_t checksum_of(std::span<const std::byte> content, std::uint32_t before) {
  if (content.size() <= kPieces * kPiece) return crc32c(content, before);
  // From the first byte to the last.
  const std::size_t last = content.size() - kPiece;
  for (std::size_t i = 0; i < kPieces; ++i) {
    const std::size_t from = i + 1 == kPieces ? last : last / (kPieces - 1) * i;
    before = crc32c(content.subspan(from, kPiece), before);
  }
  return before;
}

}  // namespace

FilesRead::FilesRead(std::filesystem::path data)
    : data_(std::move(data)), before_(std::exchange(listening, this)) {}

FilesRead::~FilesRead() { listening = before_; }

void FilesRead::add(const std::filesystem::path& path, std::span<const std::byte> content) {
  // With its size, so that bytes do not pass from one file to the next unnoticed.
  std::string heading = std::to_string(content.size());
  if (path != data_) heading += " " + path.filename().string();
  fingerprint_.checksum = crc32c(std::as_bytes(std::span(heading)), fingerprint_.checksum);
  fingerprint_.checksum = checksum_of(content, fingerprint_.checksum);
  fingerprint_.bytes += static_cast<Bytes>(content.size());
  ++fingerprint_.files;
}

void note_file(const std::filesystem::path& path, std::span<const std::byte> content) {
  if (listening != nullptr) listening->add(path, content);
}

}  // namespace ebb
