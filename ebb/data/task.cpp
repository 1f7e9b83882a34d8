// SPDX-License-Identifier: Apache-2.0
#include "ebb/data/task.h"

#include "ebb/core/error.h"
#include "ebb/data/files_read.h"
#include "ebb/data/task_parts.h"

namespace ebb {
namespace {

using Maker = std::unique_ptr<Task> (*)(const TaskOptions& options);

struct Entry {
  TaskRow row;
  Maker make;
};

const std::vector<Entry>& entries() {
  static const std::string idx = "folder with {train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]";
  static const std::string debian = "; none: the Debian package dataset-fashion-mnist";
  static const std::vector<Entry> all = {
      {{"adding", "the sum of the two marked numbers of a long sequence", "", 1000}, make_adding},
      {{"copy", "ten symbols, a long pause, then the ten symbols again", "", 120}, make_copy},
      {{"mnist", "handwritten digits, pixel by pixel", idx, 784}, make_images},
      {{"permuted-mnist", "the same with the pixels in one fixed random order", idx, 784},
       make_images},
      {{"fashion-mnist", "pictures of clothes, pixel by pixel", idx + debian, 784}, make_images},
      {{"permuted-fashion-mnist", "the same with the pixels in one fixed random order",
        idx + debian, 784},
       make_images},
      {{"qtdb", "the wave of a heartbeat at every step, from spikes",
        "folder with QTDB_train.mat and QTDB_test.mat", 1301},
       make_qtdb},
      {{"text", "the next character of a text, at every step",
        "a text file, or a folder with one file .txt", 256},
       make_text},
      {{"nmnist", "handwritten digits seen by an event camera",
        "folder with N.bs2 or N.bin files, train1K.txt and test100.txt", 300},
       make_nmnist},
      {{"speech", "spoken digits, sample by sample",
        "folder with {class}_{speaker}_{index}.wav, or one with such a folder recordings", 0},
       make_speech},
      {{"npy", "your own arrays",
        "folder with x_train.npy, y_train.npy, if you like also x_test.npy, y_test.npy, "
        "lengths_train.npy, lengths_test.npy",
        0},
       make_npy},
  };
  return all;
}

}  // namespace

std::unique_ptr<Task> make_task(const TaskOptions& options) {
  std::string names;
  for (const Entry& entry : entries()) {
    if (entry.row.name == options.name) {
      const FilesRead files(options.data);
      std::unique_ptr<Task> task = entry.make(options);
      task->data_ = files.fingerprint();
      return task;
    }
    names += (names.empty() ? "" : ", ") + entry.row.name;
  }
  fail(ErrorCode::invalid_argument, "there is no task '", options.name, "'; there are ", names);
}

const std::vector<TaskRow>& tasks() {
  static const std::vector<TaskRow> rows = [] {
    std::vector<TaskRow> all;
    for (const Entry& entry : entries()) all.push_back(entry.row);
    return all;
  }();
  return rows;
}

}  // namespace ebb
