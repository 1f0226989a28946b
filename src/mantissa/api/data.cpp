#include "mantissa/api/data.h"

#include "mantissa/api/internal.h"
#include "mantissa/data/puzzles.h"
#include "mantissa/text/kk.h"

namespace mantissa::api {

namespace {

std::vector<text::Row> rows_of(const std::vector<Row>& rows) {
  std::vector<text::Row> out;
  out.reserve(rows.size());
  for (const Row& row : rows) out.push_back({row.ids, row.labels, row.weights});
  return out;
}

text::KkOptions options_of(const PuzzleOptions& o) {
  text::KkOptions k;
  k.seed = o.seed;
  k.people_min = o.people_min;
  k.people_max = o.people_max;
  k.count = o.count;
  k.split = o.held_out ? text::KkSplit::test : text::KkSplit::train;
  k.style = text::parse_kk_style(o.style);
  return k;
}

}  // namespace

data::Memory memory_of(const Data& data) {
  data::Memory memory{data.tokens, rows_of(data.rows), {}, rows_of(data.held_out)};
  if (data.next) memory.source = [next = data.next](std::int64_t step) { return rows_of(next(step)); };
  return memory;
}

bool in_memory(const Data& data) {
  return !data.tokens.empty() || !data.rows.empty() || data.next;
}

std::vector<std::string> puzzles(const PuzzleOptions& o) {
  std::vector<std::string> rows;
  for (const text::KkPuzzle& p : text::generate(options_of(o))) rows.push_back(text::to_jsonl_row(p));
  return rows;
}

void write_puzzles(const PuzzleOptions& options, const std::filesystem::path& out, bool overwrite) {
  data::write_puzzles(options_of(options), out, overwrite);
}

}  // namespace mantissa::api
