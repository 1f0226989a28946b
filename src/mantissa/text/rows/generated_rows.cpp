#include "mantissa/text/rows/generated_rows.h"

#include <fmt/format.h>

#include "mantissa/text/puzzles/kk.h"

namespace mantissa::text {
namespace {

KkPuzzle puzzle(const GeneratedRows& rows, std::int64_t number) {
  KkOptions options;
  options.seed = rows.seed;
  options.people_min = static_cast<int>(rows.people_min);
  options.people_max = static_cast<int>(rows.people_max);
  options.split = rows.held_out ? KkSplit::test : KkSplit::train;
  return generate_one(options, number);
}

}  // namespace

std::string GeneratedRows::json(std::int64_t number) const {
  return to_jsonl_row(puzzle(*this, number));
}

std::string GeneratedRows::document(std::int64_t number) const {
  return puzzle(*this, number).text();
}

std::string GeneratedRows::where(std::int64_t number) const {
  return fmt::format("{}puzzle {}", held_out ? "held-out " : "", number);
}

std::string GeneratedRows::name() const {
  return held_out ? "held-out puzzles" : "the puzzles of kk";
}

bool names_generator(const std::string& source) {
  return source == "kk";
}

}  // namespace mantissa::text
