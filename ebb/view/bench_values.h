// SPDX-License-Identifier: Apache-2.0
// Runs in the --json of `ebb bench`, read as values and as text. Private to the room.
#pragma once

#include <string>

#include "ebb/core/json.h"

namespace ebb {

// The number at a path such as "/measured/ratio"; null where there is none.
Json number_at(const Json& run, const std::string& path);

// That number as text, "-" where there is none.
std::string seconds_at(const Json& run, const std::string& path);
std::string bytes_at(const Json& run, const std::string& path);
std::string ratio_at(const Json& run, const std::string& path);  // "1.317 x"
std::string percent_at(const Json& run, const std::string& path);
std::string count_at(const Json& run, const std::string& path);

bool run_fits(const Json& run);
// "auto"; "double, in turn" where transfers and compute take turns.
std::string run_name(const Json& run);
// Of auto, the strategy that it chose: "as levels". Else empty.
std::string run_choice(const Json& run);
// "does not fit (least 2.1 MiB)"
std::string unfit_words(const Json& run);

// Of a ratio that is to be at most `goal`.
enum class Verdict { met, undecided, missed };
Verdict verdict_of(const Json& run, const Json& goal);
// "predicted 1.2 x, measured 1.4 x: missed"
std::string verdict_words(const Json& run, Verdict verdict);

// Of the steps that `chunk` time steps make, how often each ran forward.
std::string forwards_of_run(const Json& run);
// Bytes written and read, of a time step.
std::string moved_of_run(const Json& run);
// Of the measured time the part that waits for transfers.
std::string waiting_of_run(const Json& run);
// "5 % (2.1 MiB)", "64 MiB" or "no limit".
std::string budget_of_run(const Json& run);

}  // namespace ebb
