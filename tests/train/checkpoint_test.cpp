// SPDX-License-Identifier: Apache-2.0
#include "ebb/train/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ebb/core/checksum.h"
#include "ebb/core/error.h"
#include "ebb/store/file.h"
#include "tests/message_of.h"
#include "tests/temporary_folder.h"

namespace ebb::test::checkpoint_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Every number of generation g is g, so that a mixture shows.
struct Numbers {
  explicit Numbers(std::int64_t g, std::size_t count = 1000)
      : model(count, static_cast<float>(g)), optimiser(count, static_cast<double>(g)), steps(g) {}

  Checkpoint checkpoint() const {
    const auto half = static_cast<std::int64_t>(model.size() / 2);
    const std::span<const float> all(model);
    Checkpoint c;
    c.iteration = steps;
    c.seed = 0xFFFFFFFFFFFFFFFF;
    c.options = R"({"cell": "lstm", "generation": )" + std::to_string(steps) + "}";
    c.model = {view_tensor("cell.weight", {half, 1}, all.first(model.size() / 2)),
               view_tensor("readout.weight", {half}, all.last(model.size() / 2))};
    c.optimiser = {view_tensor("exp_avg", {static_cast<std::int64_t>(optimiser.size())},
                               std::span<const double>(optimiser)),
                   view_tensor("step", {}, std::span<const std::int64_t>(&steps, 1))};
    return c;
  }

  std::vector<float> model;
  std::vector<double> optimiser;
  std::int64_t steps;
};

void save(const fs::path& directory, std::int64_t generation, std::size_t count = 1000) {
  save_checkpoint(directory, Numbers(generation, count).checkpoint());
}

// Returns the generation; each number has to be of it.
std::int64_t whole_generation(const Checkpoint& c, std::size_t count = 1000) {
  const std::int64_t g = c.iteration;
  EXPECT_EQ(c.options, R"({"cell":"lstm","generation":)" + std::to_string(g) + "}");
  const Numbers expected(g, count);
  std::vector<float> half(count / 2);
  for (const char* name : {"cell.weight", "readout.weight"}) {
    copy_tensor(find_tensor(c.model, name), std::span(half));
    EXPECT_EQ(half, std::vector<float>(count / 2, static_cast<float>(g))) << name;
  }
  std::vector<double> optimiser(count);
  copy_tensor(find_tensor(c.optimiser, "exp_avg"), std::span(optimiser));
  EXPECT_EQ(optimiser, expected.optimiser);
  std::int64_t steps = 0;
  copy_tensor(find_tensor(c.optimiser, "step"), std::span(&steps, 1));
  EXPECT_EQ(steps, g);
  return g;
}

std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// train.json without its last line, and with the one that belongs to the rest.
std::string unsealed(const std::string& text) {
  return text.substr(0, text.rfind(",\n  \"crc32c\""));
}
std::string sealed(const std::string& open) {
  return open + ",\n  \"crc32c\": " + std::to_string(crc32c(std::as_bytes(std::span(open)))) +
         "\n}\n";
}

std::string io_message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io) << error.what();
    return error.what();
  }
  return "no error";
}
std::string load_message(const fs::path& directory) {
  return io_message([&] { load_checkpoint(directory); });
}

TEST(Checkpoint, GivesBackWhatWasSaved) {
  const TemporaryFolder folder;
  save(folder.path(), 5);
  const Checkpoint loaded = load_checkpoint(folder.path());
  EXPECT_EQ(whole_generation(loaded), 5);
  EXPECT_EQ(loaded.seed, 0xFFFFFFFFFFFFFFFF);
  EXPECT_EQ(find_tensor(loaded.model, "cell.weight").shape, (std::vector<std::int64_t>{500, 1}));
}

TEST(Checkpoint, OneGenerationStaysAndOtherFilesToo) {
  const TemporaryFolder folder;
  const fs::path path = folder.path();
  write(path / "metrics.jsonl", "mine");
  write(path / "model-old.safetensors", "mine");
  for (const std::int64_t g : {1, 2, 3}) save(path, g);
  EXPECT_EQ(names_in(path), (std::set<std::string>{"lock", "metrics.jsonl", "model-3.safetensors",
                                                   "model-old.safetensors", "model.safetensors",
                                                   "optimiser-3.safetensors", "train.json"}));
  EXPECT_EQ(content(path / "model.safetensors"), content(path / "model-3.safetensors"));
}

// A reader that was opened before keeps what it had.
TEST(Checkpoint, ThePlainNameIsReplacedNotRewritten) {
  const TemporaryFolder folder;
  const fs::path path = folder.path();
  save(path, 1);
  std::ifstream before(path / "model.safetensors", std::ios::binary);
  const std::string first = content(path / "model.safetensors");
  save(path, 2);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(before), {}), first);
}

// Also when the files have been replaced meanwhile.
TEST(Checkpoint, OpenedTensorsStayInTheirFiles) {
  const TemporaryFolder folder;
  save(folder.path(), 1);
  const Checkpoint opened = open_checkpoint(folder.path());
  save(folder.path(), 2);
  for (const TensorView& tensor : opened.model) EXPECT_TRUE(tensor.bytes.empty()) << tensor.name;
  EXPECT_EQ(whole_generation(opened), 1);
}

TEST(Checkpoint, LeftoversOfAKilledProcessGo) {
  const TemporaryFolder folder;
  const fs::path path = folder.path();
  save(path, 1);
  for (const char* name : {"model-2.safetensors", "optimiser-2.safetensors", "model-40.safetensors",
                           "train.json.tmp", "model.safetensors.tmp"}) {
    write(path / name, "half");
  }
  EXPECT_EQ(whole_generation(load_checkpoint(path)), 1);
  save(path, 2);
  EXPECT_EQ(whole_generation(load_checkpoint(path)), 2);
  EXPECT_EQ(names_in(path).size(), 5U);
}

// Also before the first checkpoint was finished, and when the index cannot be read.
TEST(Checkpoint, SavesWhereNoneIsGood) {
  const TemporaryFolder folder;
  const fs::path path = folder.path();
  write(path / "model-1.safetensors", "half");
  EXPECT_THAT(load_message(path), HasSubstr("none was finished"));
  save(path, 1);
  write(path / "train.json", "{");
  EXPECT_THAT(load_message(path), HasSubstr("train.json: not valid JSON"));
  save(path, 2);
  EXPECT_EQ(whole_generation(load_checkpoint(path)), 2);
  EXPECT_EQ(names_in(path).size(), 5U);
}

TEST(Checkpoint, WhatIsMissingIsSaid) {
  const TemporaryFolder folder;
  const fs::path nowhere = fs::path(folder.path()) / "nowhere";
  EXPECT_THAT(load_message(nowhere), HasSubstr("there is no directory"));
  EXPECT_THAT(io_message([&] { save(nowhere, 1); }), HasSubstr("there is no directory"));
  EXPECT_THAT(load_message(folder.path()), HasSubstr("has no train.json; it is not a checkpoint"));
}

TEST(Checkpoint, DamageNamesTheFile) {
  for (const char* name : {"model-2.safetensors", "optimiser-2.safetensors", "train.json"}) {
    const TemporaryFolder folder;
    const fs::path path = folder.path();
    save(path, 1);
    const std::string older = content(path / "optimiser-1.safetensors");
    save(path, 2);
    const std::string good = content(path / name);
    for (const std::size_t left :
         {std::size_t{0}, std::size_t{9}, good.size() / 2, good.size() - 2}) {
      write(path / name, good.substr(0, left));
      EXPECT_THAT(load_message(path), HasSubstr(name)) << left;
    }
    write(path / name, good);
    EXPECT_EQ(whole_generation(load_checkpoint(path)), 2);
    if (std::string(name) == "train.json") continue;
    std::string flipped = good;
    flipped[flipped.size() - 5] ^= 4;
    write(path / name, flipped);
    EXPECT_THAT(load_message(path), HasSubstr(name));
    write(path / name, older);
    EXPECT_THAT(load_message(path), HasSubstr(name));
    fs::remove(path / name);
    EXPECT_THAT(load_message(path), HasSubstr(name));
  }
}

TEST(Checkpoint, AnIndexThatLeadsElsewhereIsDamaged) {
  const TemporaryFolder folder;
  const fs::path path = folder.path();
  save(path, 1);
  const std::string good = unsealed(content(path / "train.json"));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    write(path / "train.json", sealed(text.replace(at, from.size(), to)));
    return load_message(path);
  };
  EXPECT_THAT(with("model-1.safetensors", "../model-1.safetensors"), HasSubstr("a name such as"));
  EXPECT_THAT(with("model-1.safetensors", "model-01.safetensors"), HasSubstr("a name such as"));
  EXPECT_THAT(with("model-1.safetensors", "model-2.safetensors"),
              HasSubstr("different generations"));
  EXPECT_THAT(with("\"iteration\": 1", "\"iteration\": -1"), HasSubstr("iteration must be"));
  EXPECT_THAT(with("\"model\"", "\"muddle\""), HasSubstr("unknown key \"muddle\""));
  EXPECT_THAT(with("\"format\": 1", "\"format\": 0"), HasSubstr("format must be 1"));
  const std::string later = R"({"format": 2, "something": "new")";
  for (const std::string& text : {later + "}", sealed(later)}) {
    write(path / "train.json", text);
    try {
      load_checkpoint(path);
      FAIL() << "a later format is read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unavailable);
    }
  }
}

TEST(Checkpoint, AnyByteOfTheIndexThatChangedIsNoticed) {
  const TemporaryFolder folder;
  const fs::path path = folder.path();
  Numbers numbers(1);
  Checkpoint saved = numbers.checkpoint();
  saved.options = R"({"lr": 0.001, "steps": 100, "seed": 3, "cell": "lstm", "bias": true})";
  saved.data = {.files = 2, .bytes = 1234, .checksum = 77};
  save_checkpoint(path, saved);
  EXPECT_EQ(load_checkpoint(path).data, saved.data);
  const std::string good = content(path / "train.json");
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::vector<char> others = {static_cast<char>(good[i] ^ 1), ' '};
    if (good[i] >= '0' && good[i] <= '9') {
      for (char digit = '0'; digit <= '9'; ++digit) others.push_back(digit);
    }
    for (const char other : others) {
      if (other == good[i]) continue;
      std::string text = good;
      text[i] = other;
      write(path / "train.json", text);
      ASSERT_THAT(load_message(path), HasSubstr("train.json: ")) << i << ": " << good[i] << other;
    }
    write(path / "train.json", std::string(good).erase(i, 1));
    ASSERT_THAT(load_message(path), HasSubstr("train.json: ")) << i;
  }
  write(path / "train.json", good + "\n");
  EXPECT_THAT(load_message(path), HasSubstr("it is not as ebb wrote it"));
  write(path / "train.json", unsealed(good) + "\n}\n");
  EXPECT_THAT(load_message(path), HasSubstr("it ends without its checksum, crc32c"));
  write(path / "train.json", good);
  EXPECT_EQ(load_checkpoint(path).iteration, 1);
}

TEST(Checkpoint, WhatCannotBeSavedLeavesTheOldOne) {
  const TemporaryFolder folder;
  save(folder.path(), 1);
  const Numbers numbers(2);
  Checkpoint bad = numbers.checkpoint();
  bad.options = "[]";
  EXPECT_THAT(message_of([&] { save_checkpoint(folder.path(), bad); }), HasSubstr("JSON object"));
  bad = numbers.checkpoint();
  bad.model.push_back(bad.model.front());
  EXPECT_THAT(message_of([&] { save_checkpoint(folder.path(), bad); }), HasSubstr("two tensors"));
  bad = numbers.checkpoint();
  bad.iteration = -1;
  EXPECT_THAT(message_of([&] { save_checkpoint(folder.path(), bad); }), HasSubstr("iteration -1"));
  EXPECT_EQ(whole_generation(load_checkpoint(folder.path())), 1);
  EXPECT_EQ(names_in(folder.path()).size(), 5U);
}

std::size_t room_left = 0;
ssize_t write_while_there_is_room(int fd, const void* data, std::size_t bytes, off_t offset) {
  const std::size_t now = std::min(bytes, room_left);
  if (now == 0) {
    errno = ENOSPC;
    return -1;
  }
  room_left -= now;
  return ::pwrite(fd, data, now, offset);
}

// Wherever it runs out: in the first file, the second, or the index.
TEST(Checkpoint, AFullDiskLeavesTheOldOne) {
  const TemporaryFolder folder;
  const fs::path path = folder.path();
  save(path, 1);
  const auto size = [&](const char* name) { return fs::file_size(path / name); };
  const std::size_t model = size("model-1.safetensors"),
                    all = model + size("optimiser-1.safetensors");
  const FileCalls real = file_calls();
  for (const std::size_t room :
       {std::size_t{0}, std::size_t{100}, model - 1, model, model + 100, all - 1, all, all + 20}) {
    room_left = room;
    file_calls().pwrite = write_while_there_is_room;
    const std::string message = io_message([&] { save(path, 2); });
    file_calls() = real;
    EXPECT_THAT(message, HasSubstr("iteration 2 is not saved")) << room;
    EXPECT_THAT(message, HasSubstr("No space left on device"));
    EXPECT_EQ(whole_generation(load_checkpoint(path)), 1) << room;
    EXPECT_EQ(content(path / "model.safetensors"), content(path / "model-1.safetensors"));
  }
  save(path, 2);
  EXPECT_EQ(whole_generation(load_checkpoint(path)), 2);
  EXPECT_EQ(names_in(path).size(), 5U);
}

constexpr std::size_t kMany = 100'000;

// Saves generation after generation and says so through the pipe, until it is killed.
[[noreturn]] void save_until_killed(const fs::path& directory, std::int64_t from, int pipe) {
  for (std::int64_t g = from;; ++g) {
    try {
      save(directory, g, kMany);
    } catch (const std::exception&) {
      ::_exit(1);
    }
    if (::write(pipe, &g, sizeof g) != sizeof g) ::_exit(2);
  }
}

// A process that saves, and what it has said so far; gone at the end whatever the test finds.
class Saver {
 public:
  Saver(const fs::path& directory, std::int64_t from) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    process_ = ::fork();
    if (process_ == 0) save_until_killed(directory, from, ends[1]);
    ::close(ends[1]);
    said_ = ends[0];
  }
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;
  ~Saver() {
    kill();
    ::close(said_);
  }

  // The generation it says next; 0: it is gone and has said everything.
  std::int64_t next() const {
    std::int64_t generation = 0;
    return ::read(said_, &generation, sizeof generation) == sizeof generation ? generation : 0;
  }
  // Whether it lived until then.
  bool kill() {
    if (process_ <= 0) return false;
    int status = 0;
    ::kill(process_, SIGKILL);
    ::waitpid(std::exchange(process_, 0), &status, 0);
    return WIFSIGNALED(status);
  }

 private:
  pid_t process_ = 0;
  int said_ = -1;
};

TEST(Checkpoint, SurvivesBeingKilledAtAnyMoment) {
  const TemporaryFolder folder;
  std::mt19937 random(7);
  std::int64_t reached = 0;
  int with_leftovers = 0;
  for (int round = 0; round < 20; ++round) {
    Saver saver(folder.path(), reached + 1);
    std::int64_t acknowledged = saver.next();
    ::usleep(std::uniform_int_distribution<useconds_t>(0, 30'000)(random));
    ASSERT_TRUE(saver.kill()) << "it could not save";
    while (const std::int64_t generation = saver.next()) acknowledged = generation;

    reached = whole_generation(load_checkpoint(folder.path()), kMany);
    ASSERT_GE(reached, acknowledged);
    ASSERT_LE(reached, acknowledged + 1);
    with_leftovers += names_in(folder.path()).size() > 5 ? 1 : 0;
  }
  // Otherwise the moments were all between two saves, and this shows nothing.
  EXPECT_GT(with_leftovers, 0);
  save(folder.path(), reached + 1);
  EXPECT_EQ(names_in(folder.path()).size(), 5U);
}

// What another process would see at any time.
TEST(Checkpoint, CanBeLoadedWhileItIsSaved) {
  const TemporaryFolder folder;
  save(folder.path(), 1, kMany);
  Saver saver(folder.path(), 2);
  ASSERT_EQ(saver.next(), 2);
  std::int64_t last = 2;
  for (int i = 0; i < 100 && !HasFailure(); ++i) {
    const std::int64_t now = whole_generation(load_checkpoint(folder.path()), kMany);
    EXPECT_GE(now, last);
    last = now;
  }
  EXPECT_TRUE(saver.kill()) << "it could not save";
}

}  // namespace
}  // namespace ebb::test::checkpoint_test
