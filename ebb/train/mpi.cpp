// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>

#include <string>

#include "ebb/core/error.h"
#include "ebb/train/rank_link.h"

namespace ebb {
namespace {

class MpiLink : public RankLink {
 public:
  explicit MpiLink(int started) {
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
    if (size_ != started) {
      fail(ErrorCode::unavailable, started,
           " processes were started to train together, and MPI sees ", size_,
           "; start them with the launcher of the MPI that ebb was built with");
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void exchange(std::span<const std::byte> mine, std::span<std::byte> from_all,
                std::size_t part) override {
    const int count = static_cast<int>(part);
    check("MPI_Alltoall",
          MPI_Alltoall(mine.data(), count, MPI_BYTE, from_all.data(), count, MPI_BYTE, all_));
  }

  void gather(std::span<const std::byte> mine, std::span<std::byte> of_all) override {
    const int count = static_cast<int>(mine.size());
    check("MPI_Allgather",
          MPI_Allgather(mine.data(), count, MPI_BYTE, of_all.data(), count, MPI_BYTE, all_));
  }

  bool any(bool here) override {
    int flag = here ? 1 : 0;
    check("MPI_Allreduce", MPI_Allreduce(MPI_IN_PLACE, &flag, 1, MPI_INT, MPI_MAX, all_));
    return flag != 0;
  }

  void end_all(int code) override { MPI_Abort(all_, code); }

  void finish() noexcept override {
    if (failed_) return;
    MPI_Comm_free(&all_);
    if (ours_) MPI_Finalize();
  }

 private:
  void check(const char* call, int result) {
    if (result == MPI_SUCCESS) return;
    failed_ = true;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(result, text, &length);
    fail(ErrorCode::device, call, " failed: ", std::string(text, static_cast<std::size_t>(length)));
  }

  MPI_Comm all_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  bool ours_ = false;    // MPI was set up here
  bool failed_ = false;  // then nobody knows where the others are
};

}  // namespace

std::unique_ptr<RankLink> join_ranks(int started) { return std::make_unique<MpiLink>(started); }

}  // namespace ebb
