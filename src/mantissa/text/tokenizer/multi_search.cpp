#include "mantissa/text/tokenizer/multi_search.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace mantissa::tokenizer {

MultiSearch::MultiSearch(const std::vector<std::string_view>& patterns) {
  std::vector<std::size_t> order(patterns.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return patterns[i]; });
  // The patterns order[first] to order[last - 1] begin with a node. Nodes are numbered by their lengths.
  struct Range {
    std::size_t first, last;
  };
  std::vector<Range> ranges = {{0, order.size()}};
  nodes_.resize(1);
  bytes_.resize(1);
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    auto [first, last] = ranges[node];
    const std::size_t length = nodes_[node].length;
    if (first < last && patterns[order[first]].size() == length && length > 0) {
      nodes_[node].pattern = static_cast<std::uint32_t>(order[first++]);
      nodes_[node].pattern_length = static_cast<std::uint32_t>(length);
    }
    nodes_[node].first_child = static_cast<std::uint32_t>(nodes_.size());
    while (first < last) {
      const char byte = patterns[order[first]][length];
      std::size_t end = first;
      while (end < last && patterns[order[end]][length] == byte) ++end;
      nodes_.emplace_back().length = static_cast<std::uint32_t>(length + 1);
      bytes_.push_back(static_cast<unsigned char>(byte));
      ranges.push_back({first, end});
      ++nodes_[node].children;
      first = end;
    }
  }
  std::ranges::fill(from_root_, kNone);
  const Node& root = nodes_[kRoot];
  for (std::uint32_t i = 0; i < root.children; ++i)
    from_root_[bytes_[root.first_child + i]] = root.first_child + i;
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) link(node);
  make_table();
}

/// Sets the suffixes of the children of a node, whose own is known.
void MultiSearch::link(std::uint32_t parent) {
  const Node node = nodes_[parent];
  for (std::uint32_t to = node.first_child; to < node.first_child + node.children; ++to) {
    Node& here = nodes_[to];
    if (parent != kRoot) {
      std::uint32_t from = node.suffix, found = child(nodes_[from], bytes_[to]);
      while (found == kNone && from != kRoot) {
        from = nodes_[from].suffix;
        found = child(nodes_[from], bytes_[to]);
      }
      if (found != kNone) here.suffix = found;
    }
    if (here.pattern != kNone) continue;
    here.pattern = nodes_[here.suffix].pattern;
    here.pattern_length = nodes_[here.suffix].pattern_length;
  }
}

std::uint32_t MultiSearch::child(const Node& node, unsigned char byte) const {
  if (node.length == 0) return from_root_[byte];
  if (node.children == 0) return kNone;
  const unsigned char* const first = bytes_.data() + node.first_child;
  const void* const found = std::memchr(first, byte, node.children);
  return found == nullptr ? kNone
                          : node.first_child +
                                static_cast<std::uint32_t>(static_cast<const unsigned char*>(found) - first);
}

void MultiSearch::make_table() {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  for (std::size_t i = 1; i < bytes_.size(); ++i) {
    unsigned char& of_byte = class_of_[bytes_[i]];
    if (of_byte == 0 && classes_ < 256) of_byte = static_cast<unsigned char>(classes_++);
  }
  // With patterns of all bytes, one would have the class of no pattern.
  const bool all = std::ranges::count(class_of_, 0) == 0 || classes_ == 256;
  if (all || nodes_.size() > kMost / classes_) return;
  table_.resize(nodes_.size() * classes_, kRoot);
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {  // a suffix is shorter, so its row is complete
    const auto row = table_.begin() + static_cast<std::ptrdiff_t>(std::size_t{node} * classes_);
    if (node != kRoot) {
      const auto suffix =
          table_.begin() + static_cast<std::ptrdiff_t>(std::size_t{nodes_[node].suffix} * classes_);
      std::copy_n(suffix, classes_, row);
    }
    for (std::uint32_t i = 0; i < nodes_[node].children; ++i) {
      const std::uint32_t to = nodes_[node].first_child + i;
      row[class_of_[bytes_[to]]] = to;
    }
  }
}

std::uint32_t MultiSearch::next(std::uint32_t state, unsigned char byte) const {
  if (!table_.empty()) return table_[std::size_t{state} * classes_ + class_of_[byte]];
  std::uint32_t to = child(nodes_[state], byte);
  while (to == kNone && state != kRoot) {
    state = nodes_[state].suffix;
    to = child(nodes_[state], byte);
  }
  return to == kNone ? kRoot : to;
}

std::optional<MultiSearch::Match> MultiSearch::find(std::string_view text, std::size_t from) const {
  std::optional<Match> best;
  std::uint32_t state = kRoot;
  for (std::size_t at = from; at < text.size(); ++at) {
    if (state == kRoot) {
      while (at < text.size() && from_root_[static_cast<unsigned char>(text[at])] == kNone) ++at;
      if (at == text.size()) break;
    }
    state = next(state, static_cast<unsigned char>(text[at]));
    const Node& node = nodes_[state];
    // No later match begins before the state does.
    if (best && at + 1 - node.length > best->start) return best;
    if (node.pattern == kNone) continue;
    // Of the patterns that end here this is the longest, so it begins first.
    const std::size_t start = at + 1 - node.pattern_length;
    if (!best || start <= best->start) best = {start, at + 1, node.pattern};
  }
  return best;
}

}  // namespace mantissa::tokenizer
