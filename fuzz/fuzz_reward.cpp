// The bytes as a line of a reward program, and as a pattern, an answer and a response, one on each line.
#include <cmath>
#include <string>

#include "check.h"
#include "mantissa/text/reward/reply.h"
#include "mantissa/text/reward/rules.h"
#include "target.h"

using namespace mantissa;

namespace {

/// Removes the first line of `text` and returns it.
std::string take_line(std::string& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string line = text.substr(0, end);
  text.erase(0, end + 1);
  return line;
}

bool is_f32(double value) {
  return std::isfinite(static_cast<float>(value));
}

}  // namespace

MANTISSA_FUZZ_TARGET(reward, nullptr) {
  std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::expect_only_errors([&] {
    const reward::Score score = reward::parse_reply(text);
    fuzz::require(is_f32(score.total), "a reward is finite");
    for (const auto& [name, value] : score.parts) fuzz::require(is_f32(value), "a part is finite");
  });
  fuzz::expect_only_errors([&] {
    const std::string pattern = take_line(text);
    const nlohmann::ordered_json row = {{"answer", take_line(text)}};
    const auto rule = reward::regex_rule(pattern);
    rule->check_row(row, "row");
    const reward::Sample sample{"", text, &row};
    const double reward = rule->score({&sample, 1}).at(0).total;
    fuzz::require(reward == 0 || reward == 1, "a response matches or does not");
  });
  return 0;
}
