// SPDX-License-Identifier: Apache-2.0
// The explorer as WebAssembly: what page/planner_worker.js calls. Text goes in and out as bytes of the module's memory.
#include <cstddef>
#include <string>

#include "ebb/view/explorer.h"

namespace ebb {
namespace {

Explorer explorer;
std::string question, answer;

}  // namespace

extern "C" {

// Where a question of that many bytes is written to.
[[clang::export_name("question_place")]] char* question_place(std::size_t bytes) {
  question.resize(bytes);
  return question.data();
}

// Both return the bytes of an answer, which is at answer_place() until the next call.
[[clang::export_name("plan")]] std::size_t plan() {
  answer = explorer.plan(question);
  return answer.size();
}
[[clang::export_name("curve")]] std::size_t curve(double seconds) {
  answer = explorer.curve(seconds);
  return answer.size();
}

[[clang::export_name("answer_place")]] const char* answer_place() { return answer.data(); }

}  // extern "C"
}  // namespace ebb
