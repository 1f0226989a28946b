#include "mantissa/files/gguf/sentencepiece_merges.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <tuple>
#include <unordered_map>

namespace mantissa::gguf {
namespace {

constexpr std::size_t kLongest = 256;  // bytes of a token whose parts are looked up; longer ones are markup

bool begins_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
}

struct Merge {
  double score = 0;
  std::int32_t left_length = 0, right_length = 0;  // characters
  std::int32_t left = 0, right = 0;                // ids

  auto order() const { return std::tuple(-score, -left_length, -right_length); }
};

}  // namespace

std::vector<std::pair<std::string, std::string>> sentencepiece_merges(const std::vector<std::string>& tokens,
                                                                      const std::vector<double>& scores) {
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t id = 0; id < tokens.size(); ++id)
    ids.insert_or_assign(tokens[id], static_cast<std::int32_t>(id));
  std::vector<Merge> merges;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view token = tokens[id];
    if (token.size() > kLongest) continue;
    const std::size_t first = merges.size();
    const double score = std::isnan(scores[id]) ? -std::numeric_limits<double>::infinity() : scores[id];
    const auto length = static_cast<std::int32_t>(std::ranges::count_if(token, begins_character));
    std::int32_t characters = 1;
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      if (!begins_character(token[cut])) continue;
      const auto left = ids.find(token.substr(0, cut)), right = ids.find(token.substr(cut));
      if (left != ids.end() && right != ids.end())
        merges.push_back({score, characters, length - characters, left->second, right->second});
      ++characters;
    }
    std::sort(
        merges.begin() + static_cast<std::ptrdiff_t>(first), merges.end(),
        [](const Merge& a, const Merge& b) { return std::tie(a.left, a.right) < std::tie(b.left, b.right); });
  }
  std::ranges::stable_sort(merges, {}, &Merge::order);
  std::vector<std::pair<std::string, std::string>> pairs;
  pairs.reserve(merges.size());
  for (const Merge& merge : merges)
    pairs.emplace_back(tokens[static_cast<std::size_t>(merge.left)],
                       tokens[static_cast<std::size_t>(merge.right)]);
  return pairs;
}

std::vector<float> merge_scores(const std::vector<std::string>& tokens,
                                const std::vector<std::pair<std::string, std::string>>& merges) {
  std::unordered_map<std::string, std::size_t> last;  // merge of each result
  for (std::size_t i = 0; i < merges.size(); ++i) last[merges[i].first + merges[i].second] = i;
  std::unordered_map<std::string, float> scores;
  std::size_t begin = 0, end = 0;  // of the merges that share a score
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const std::string result = merges[i].first + merges[i].second;
    if (i > end) begin = i;
    end = std::max(i > end ? i : end, last[result]);
    scores.emplace(result, -static_cast<float>(begin));
  }
  std::vector<float> all;
  for (const std::string& token : tokens) {
    const auto found = scores.find(token);
    all.push_back(found == scores.end() ? -static_cast<float>(merges.size()) : found->second);
  }
  return all;
}

}  // namespace mantissa::gguf
