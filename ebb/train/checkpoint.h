// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a training run: what a run needs to go on as if it had never stopped.
//
// A directory holds one, in these files:
//   train.json                 the iteration, the seed, the options, the fingerprint of the data, which two
//                              files belong to it, and a checksum of all that
//   model-N.safetensors        the parameters of generation N
//   optimiser-N.safetensors    the optimiser's state of generation N
//   model.safetensors          the parameters under a name that stays, for PyTorch and other readers
//   lock                       who writes into it now, see RunLock
// Other files in it are left alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ebb/data/fingerprint.h"
#include "ebb/train/safetensors.h"

namespace ebb {

class RunLock;

// What a training run continues from.
struct Checkpoint {
  std::int64_t iteration = 0;  // iterations done
  std::uint64_t seed = 0;
  std::string options = "{}";  // the caller's own, a JSON object
  DataFingerprint data;        // that it was trained with
  std::vector<TensorView> model, optimiser;
  TensorNotes notes = {};  // in the model's files
  // What the tensors of a loaded checkpoint look into.
  std::shared_ptr<const void> held;
};

// When it returns, the checkpoint survives a loss of power. Until then the one before it is what
// load_checkpoint finds, however the process ends: the new files are written and synced beside the
// old ones, train.json is renamed over the old one, and only then the old ones are removed. What a
// killed process left behind is removed by the next save.
// model.safetensors is a hard link to the parameters (a copy where the file system has no links),
// always whole; it is replaced after train.json, so that it is one generation behind if the process
// is killed in between.
// Throws Error(io): the directory is missing or cannot be written, no space is left, a run or another
// process is writing into it; Error(invalid_argument): tensors that safetensors cannot hold, options that
// are not a JSON object.
void save_checkpoint(const std::filesystem::path& directory, const Checkpoint& checkpoint);
// The same for whoever holds the directory already.
void save_checkpoint(const RunLock& lock, const Checkpoint& checkpoint);

// Also while another process saves into the directory. The options come back as compact JSON.
// Throws Error(io): the directory or train.json is missing, a file is missing, of another generation or
// not as it was written, to the byte (named in the message); Error(unavailable): written by a later version.
Checkpoint load_checkpoint(const std::filesystem::path& directory);
// The same without the optimiser's state, whose file may be missing.
Checkpoint load_model(const std::filesystem::path& directory);
// The same, without the tensors' bytes: they stay in their files, and copy_tensor reads them. Files are
// checked now.
Checkpoint open_checkpoint(const std::filesystem::path& directory);

}  // namespace ebb
