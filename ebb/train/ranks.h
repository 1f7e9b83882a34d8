// SPDX-License-Identifier: Apache-2.0
// The processes that train one model together, each on a share of every batch.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace ebb {

class RankLink;  // private: what MPI does here

// How processes wait for each other.
struct RankOptions {
  // How long a process waits for the others before it takes them for lost; 0: forever. Another
  // process's tests and the writing of a checkpoint are such waits.
  double patience = 600;  // seconds
};

// One process alone, unless mpirun, mpiexec or srun started several: only then MPI is needed and set
// up, by the constructor, and ended by the destructor. One Ranks at a time, from one thread, and with
// MPI one in a process's life unless the program sets up MPI itself.
//
// Everything but rank, size, local_rank and end_all is done together: each process calls the same functions in the
// same order with arrays of the same size, or all of them wait forever. So a process that fails alone
// has to take the others with it. The program makes Ranks outside of its `try` and ends all in `catch`:
//
//   Ranks ranks;
//   try {
//     train(ranks);
//   } catch (const std::exception& error) {
//     ... print error.what() with ranks.rank(), flush ...
//     ranks.end_all(code);
//     return code;  // reached when the process is alone
//   }
//
// Where an exception leaves the life of a Ranks all the same, MPI is not ended properly, which common
// launchers (Open MPI's, MPICH's, srun with --kill-on-bad-exit) take as the sign to end the others.
class Ranks {
 public:
  // Throws Error(unavailable) when several processes were started and this build has no MPI, or not
  // that of the launcher; Error(device) when MPI fails.
  explicit Ranks(const RankOptions& options = {});
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks();

  int rank() const;        // from 0
  int size() const;        // how many there are
  int local_rank() const;  // from 0 among those of this machine

  // The sum over all processes, the same bits in all of them. Added up in double and in the order of
  // ranks, so that the same number of processes gives the same bits each time.
  // All of these throw Error(device) when MPI fails, and when other processes do not come within
  // options.patience: it names them, and the lowest of those who wait throws first.
  void sum(std::span<float> numbers);
  void sum(std::span<double> numbers);
  // Whether it is true in any of them.
  bool any(bool here);

  // Called now and then, in the caller's thread, while one of the above waits for other processes.
  // What it throws ends the wait, and the processes are no longer in step.
  void set_waiting(std::function<void()> waiting);

  // Ends all processes, this one too, with that code; it does not return unless this one is alone.
  void end_all(int code);

 private:
  std::unique_ptr<RankLink> link_;  // null: alone
  int exceptions_;                  // under way when this was made
};

}  // namespace ebb
