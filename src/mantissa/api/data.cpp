#include "mantissa/api/data.h"

#include "mantissa/text/kk.h"

namespace mantissa::api {

std::vector<std::string> puzzles(const PuzzleOptions& o) {
  text::KkOptions k;
  k.seed = o.seed;
  k.people_min = o.people_min;
  k.people_max = o.people_max;
  k.count = o.count;
  k.split = o.held_out ? text::KkSplit::test : text::KkSplit::train;
  k.style = text::parse_kk_style(o.style);
  std::vector<std::string> rows;
  for (const text::KkPuzzle& p : text::generate(k)) rows.push_back(text::to_jsonl_row(p));
  return rows;
}

}  // namespace mantissa::api
