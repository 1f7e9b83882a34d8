// SPDX-License-Identifier: Apache-2.0
// Trials as words and as figure data; shared by the experiments that run them.
#pragma once

#include <string>
#include <vector>

#include "ebb/experiments/figure_data.h"
#include "ebb/experiments/trials.h"

namespace ebb {

// "1.317x"
std::string format_ratio(double ratio);

// "2.5 %", or "> 999 %", which says as much and is narrow.
std::string format_spread(double spread);
// "a row's slowest run took up to 2.5 % longer than its best"
std::string spread_words(double spread);

// What to print behind a measured ratio that is to be at most `goal`: nothing where it is, else
// " (> 1.333x)". And whether some of the runs meet it, and what to say then.
std::string missed_words(const Trial& trial, double goal);
bool is_undecided(const Trial& trial, double goal);
std::string undecided_words(const Trial& trial);

// "does not fit (least 2.1 MiB)"
std::string does_not_fit(const Trial& trial);

// Strategy, budget and, where it fits, what was predicted and measured over `time_steps`.
Json trial_json(const Trial& trial, std::int64_t time_steps, const Platform& platform);

// `first` and, behind them, the columns that every trial has.
std::vector<CsvColumn> trial_columns(std::vector<CsvColumn> first);

}  // namespace ebb
