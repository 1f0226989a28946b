#include "mantissa/text/tokenizer/trie.h"

#include <algorithm>

namespace mantissa::tokenizer {

Trie::Trie(std::vector<std::pair<std::string, std::int32_t>> entries) {
  std::sort(entries.begin(), entries.end());
  // The entries [begin, end) share the first `depth` bytes, which lead to the node.
  struct Range {
    std::size_t begin, end, depth;
  };
  std::vector<Range> ranges = {{0, entries.size(), 0}};
  nodes_.emplace_back();
  for (std::size_t n = 0; n < ranges.size(); ++n) {
    auto [begin, end, depth] = ranges[n];
    if (begin < end && entries[begin].first.size() == depth) nodes_[n].id = entries[begin++].second;
    if (begin == end) continue;
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(entries[i].first[depth]); };
    nodes_[n].low = byte(begin);
    nodes_[n].count = static_cast<std::uint16_t>(byte(end - 1) - byte(begin) + 1);
    nodes_[n].first = static_cast<std::uint32_t>(next_.size());
    next_.resize(next_.size() + nodes_[n].count, -1);
    for (std::size_t i = begin; i < end;) {
      std::size_t last = i;
      while (last < end && byte(last) == byte(i)) ++last;
      next_[nodes_[n].first + byte(i) - nodes_[n].low] = static_cast<std::int32_t>(nodes_.size());
      nodes_.emplace_back();
      ranges.push_back({i, last, depth + 1});
      i = last;
    }
  }
}

Trie::Match Trie::longest(std::string_view text) const {
  Match match;
  const Node* node = &nodes_.front();
  for (std::size_t at = 0; at < text.size();) {
    const unsigned index = static_cast<unsigned char>(text[at]) - static_cast<unsigned>(node->low);
    if (index >= node->count) break;
    const std::int32_t child = next_[node->first + index];
    if (child < 0) break;
    node = &nodes_[static_cast<std::size_t>(child)];
    ++at;
    if (node->id >= 0) match = {node->id, at};
  }
  return match;
}

}  // namespace mantissa::tokenizer
