// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ebb/core/at.h"
#include "ebb/core/clock.h"
#include "ebb/core/error.h"
#include "ebb/train/rank_link.h"

namespace ebb {
namespace {

using namespace std::chrono_literals;

constexpr double kSpin = 50e-6;  // seconds before a wait sleeps
constexpr auto kNap = 50us;
constexpr double kTold = 0.05;  // seconds between two calls of `waiting`
constexpr double kBehind = 1;  // seconds that the lowest of those who wait throws before the others

class MpiLink : public RankLink {
 public:
  MpiLink(int started, double patience) : patience_(patience) {
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (finalized != 0) {
      fail(ErrorCode::device,
           "MPI: it was ended and can be set up only once in a process; keep one "
           "Ranks for all that is to be done");
    }
    if (initialized == 0) {
      int provided = 0;
      check("MPI_Init_thread", MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided));
      ours_ = true;
    }
    // A communicator of its own: neither errors nor messages meet those of the program.
    check("MPI_Comm_dup", MPI_Comm_dup(MPI_COMM_WORLD, &all_));
    check("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler(all_, MPI_ERRORS_RETURN));
    check("MPI_Comm_rank", MPI_Comm_rank(all_, &rank_));
    check("MPI_Comm_size", MPI_Comm_size(all_, &size_));
    MPI_Comm machine = MPI_COMM_NULL;
    check("MPI_Comm_split_type",
          MPI_Comm_split_type(all_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine));
    check("MPI_Comm_rank", MPI_Comm_rank(machine, &local_rank_));
    check("MPI_Comm_free", MPI_Comm_free(&machine));
    if (size_ != started) {
      fail(ErrorCode::unavailable, started,
           " processes were started to train together, and MPI sees ", size_,
           "; start them with the launcher of the MPI that ebb was built with");
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return local_rank_; }

  void exchange(std::span<const std::byte> mine, std::span<std::byte> from_all,
                std::size_t part) override {
    const int count = static_cast<int>(part);
    wait("MPI_Ialltoall", [&](MPI_Request* request) {
      return MPI_Ialltoall(mine.data(), count, MPI_BYTE, from_all.data(), count, MPI_BYTE, all_,
                           request);
    });
  }

  void gather(std::span<const std::byte> mine, std::span<std::byte> of_all) override {
    const int count = static_cast<int>(mine.size());
    wait("MPI_Iallgather", [&](MPI_Request* request) {
      return MPI_Iallgather(mine.data(), count, MPI_BYTE, of_all.data(), count, MPI_BYTE, all_,
                            request);
    });
  }

  bool any(bool here) override {
    int flag = here ? 1 : 0;
    wait("MPI_Iallreduce", [&](MPI_Request* request) {
      return MPI_Iallreduce(MPI_IN_PLACE, &flag, 1, MPI_INT, MPI_MAX, all_, request);
    });
    return flag != 0;
  }

  void set_waiting(std::function<void()> waiting) override { waiting_ = std::move(waiting); }

  void end_all(int code) override { MPI_Abort(all_, code); }

  void finish() noexcept override {
    if (failed_) return;
    MPI_Comm_free(&all_);
    if (ours_) MPI_Finalize();
  }

 private:
  // A collective call that does not block, so that no process waits forever for a process that is lost.
  template <class Begin>
  void wait(const char* call, const Begin& begin) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(call, begin(&request));
    ++round_;
    const double began = seconds_now();
    double told = began;
    std::vector<bool> waits;  // who has said so
    for (;;) {
      int done = 0;
      check(call, MPI_Test(&request, &done, MPI_STATUS_IGNORE));
      if (done != 0) return;  // NOLINT(clang-analyzer-optin.mpi.MPI-Checker): knows no MPI_Test
      const double now = seconds_now();
      if (now - began < kSpin) continue;
      std::this_thread::sleep_for(kNap);
      if (waiting_ && now - told >= kTold) {
        told = now;
        failed_ = true;  // if it throws
        waiting_();
        failed_ = false;
      }
      if (patience_ == 0 || now - began < patience_ / 2) continue;
      if (waits.empty()) {
        waits.resize(at(size_));
        say_that_it_waits();
      }
      hear_who_waits(waits);
      const bool is_lowest = std::ranges::find(waits, true) - waits.begin() == rank_;
      // NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): who throws does not wait
      if (now - began >= patience_ + (is_lowest ? 0 : kBehind)) refuse_to_wait(waits);
    }
  }

  // To all, this one too, after half of the patience: who has not said so at its end is the one that
  // everybody waits for.
  void say_that_it_waits() {
    said_.push_back(round_);
    for (int to = 0; to < size_; ++to) {
      MPI_Request sent = MPI_REQUEST_NULL;
      check("MPI_Isend", MPI_Isend(&said_.back(), 1, MPI_LONG_LONG, to, 0, all_, &sent));
      // NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): knows no MPI_Request_free
      check("MPI_Request_free", MPI_Request_free(&sent));
    }
  }

  void hear_who_waits(std::vector<bool>& waits) {
    for (;;) {
      int found = 0;
      MPI_Status status;
      check("MPI_Iprobe", MPI_Iprobe(MPI_ANY_SOURCE, 0, all_, &found, &status));
      if (found == 0) return;
      long long round = 0;
      check("MPI_Recv", MPI_Recv(&round, 1, MPI_LONG_LONG, status.MPI_SOURCE, 0, all_, &status));
      if (round == round_) waits[at(status.MPI_SOURCE)] = true;  // else of an earlier wait
    }
  }

  [[noreturn]] void refuse_to_wait(const std::vector<bool>& waits) {
    failed_ = true;
    std::string names;
    for (std::size_t rank = 0; rank < waits.size(); ++rank) {
      if (!waits[rank]) names += (names.empty() ? "" : ", ") + std::to_string(rank);
    }
    if (names.empty()) names = "?";  // all wait, and MPI does not go on
    fail(ErrorCode::device, "process ", names, " of ", size_, " has not come for ", patience_,
         " seconds; it hangs, or others do more than their share (--patience)");
  }

  void check(const char* call, int result) {
    if (result == MPI_SUCCESS) return;
    failed_ = true;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(result, text, &length);
    fail(ErrorCode::device, call, " failed: ", std::string(text, static_cast<std::size_t>(length)));
  }

  MPI_Comm all_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1, local_rank_ = 0;
  double patience_ = 0;
  std::function<void()> waiting_;
  long long round_ = 0;        // of collective calls, the same in all processes
  std::list<long long> said_;  // rounds, where messages find them
  bool ours_ = false;          // MPI was set up here
  bool failed_ = false;        // then it is unknown where the others are
};

}  // namespace

std::unique_ptr<RankLink> join_ranks(int started, double patience) {
  return std::make_unique<MpiLink>(started, patience);
}

}  // namespace ebb
