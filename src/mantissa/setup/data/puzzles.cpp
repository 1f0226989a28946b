#include "mantissa/setup/data/puzzles.h"

#include <algorithm>

#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/output.h"
#include "mantissa/text/rows/sources.h"

namespace mantissa::data {

bool names_puzzles(const std::vector<std::string>& source) {
  return source.size() == 1 && source.front() == "kk";
}

bool has_puzzles(const std::vector<std::string>& source) {
  return std::ranges::find(source, "kk") != source.end();
}

bool holds_text(const std::vector<std::string>& source, const std::string& format) {
  return has_puzzles(source) || text::holds_text(source, format);
}

text::KkOptions training_puzzles(const config::RunConfig& config) {
  text::KkOptions options;
  options.seed = config.run.seed;
  options.people_min = static_cast<int>(config.data.people_min);
  options.people_max = static_cast<int>(config.data.people_max);
  return options;
}

text::KkOptions held_out_puzzles(const config::RunConfig& config) {
  text::KkOptions options = training_puzzles(config);
  options.split = text::KkSplit::test;
  return options;
}

text::KkOptions held_out_puzzles() {
  text::KkOptions options;
  options.split = text::KkSplit::test;
  options.people_max = 3;
  options.count = 200;
  return options;
}

std::vector<std::int32_t> puzzle_tokens(const text::KkOptions& options, const tokenizer::Tokenizer& tokenizer,
                                        std::int64_t most) {
  const std::vector<text::KkPuzzle> puzzles = text::generate(options);
  // One allocation: a growing one would leave holes between the puzzles' strings that the process keeps.
  constexpr std::int64_t kLongestDocument = 4096;
  std::vector<std::int32_t> ids;
  ids.reserve(static_cast<std::size_t>(
      std::min(most, kLongestDocument * static_cast<std::int64_t>(puzzles.size())) + kLongestDocument));
  for (const text::KkPuzzle& p : puzzles) {
    if (static_cast<std::int64_t>(ids.size()) > most) break;
    const std::vector<std::int32_t> document = tokenizer.encode(p.text());
    ids.insert(ids.end(), document.begin(), document.end());
    ids.push_back(tokenizer.separator());
  }
  return ids;
}

void write_puzzles(const text::KkOptions& options, const std::filesystem::path& out, bool overwrite) {
  disk::check_output({out, disk::Shape::stream, overwrite});
  std::string rows;
  for (const text::KkPuzzle& p : text::generate(options)) rows += text::to_jsonl_row(p) + '\n';
  disk::write_file_atomic(disk::given(out, overwrite), rows);
}

}  // namespace mantissa::data
