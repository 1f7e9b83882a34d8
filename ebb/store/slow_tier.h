// SPDX-License-Identifier: Apache-2.0
// The slow memories that a run may use, as its caller names them.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ebb/core/bytes.h"
#include "ebb/device/ledger.h"
#include "ebb/store/medium.h"

namespace ebb {

// A slow memory that a run may use: its name, its capacity, and how to open its Medium.
struct SlowTier {
  std::string name;
  Bytes capacity = kUnlimited;
  // The medium of one run. Memory that it takes is charged to the ledger.
  std::function<std::unique_ptr<Medium>(const Ledger& ledger)> open = nullptr;
  // Every item is checked when it is read. false: for media that never lose bytes without an error.
  bool checksum = true;
  bool keeps = true;  // false: what is read is not what was written, so that gradients are wrong
  int workers = 1;    // transfers of one direction at a time
  // Items of up to that many bytes that are not transformed are moved by put and get themselves:
  // quicker than waking a thread.
  Bytes at_once = 0;
};

// Host memory beside a smaller fast budget; copies run on threads of their own.
SlowTier memory_tier(Bytes capacity, std::string name = "ram");

// How a file is read and written.
enum class FileEngine { any, uring, threads };
struct FileOptions {
  FileEngine engine = FileEngine::any;  // any: io_uring where the system has it
  bool direct = true;                   // past the page cache where the file system allows it
};
// A file without a name in `directory`, gone with the run or the process. Throws
// Error(invalid_argument) for an empty directory; what is wrong with it otherwise is found by open.
SlowTier file_tier(std::string directory, Bytes capacity, std::string name = "disk",
                   const FileOptions& options = {});

// Free storage: transfers take no time and nothing is kept. For measuring; gradients are wrong.
SlowTier null_tier(std::string name = "null");

// Whether this build and this machine can run io_uring.
bool has_uring();

}  // namespace ebb
