#include "mantissa/train/rl/samples.h"

#include <nlohmann/json.hpp>

namespace mantissa::rl {

std::string sample_line(std::int64_t step, const Sampled& s) {
  nlohmann::ordered_json line = {{"step", step}, {"where", s.where}};
  if (s.people > 0) line["people"] = s.people;
  line["prompt"] = s.prompt;
  line["response"] = s.response;
  line["reward"] = s.reward;
  for (const auto& [name, value] : s.parts) line["parts"][name] = value;
  if (s.right) line["right"] = *s.right;
  line["tokens"] = s.tokens;
  line["truncated"] = s.truncated;
  // A response may end within a character.
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void SamplesFile::write(std::int64_t step, std::span<const Sampled> samples) {
  if (!log_) log_.emplace(report::append_after(path_, step - 1));
  std::string lines;
  for (const Sampled& s : samples) lines += sample_line(step, s) + '\n';
  log_->file.write(lines);
}

void SamplesFile::sync() {
  if (log_) log_->file.sync();
}

}  // namespace mantissa::rl
