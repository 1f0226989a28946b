// The longest of a set of byte strings that begins a text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mantissa::tokenizer {

/// An immutable trie from byte strings to ids.
class Trie {
 public:
  /// `entries` are not empty and distinct; ids are at least 0.
  explicit Trie(std::vector<std::pair<std::string, std::int32_t>> entries);

  struct Match {
    std::int32_t id = -1;    // -1: no entry begins the text
    std::size_t length = 0;  // in bytes
  };
  /// Returns the longest entry that begins `text`.
  Match longest(std::string_view text) const;

 private:
  // The children of a node, for the bytes [low, low + count), are nodes next_[first], … ; -1: none.
  struct Node {
    std::int32_t id = -1;
    std::uint32_t first = 0;
    std::uint16_t count = 0;
    std::uint8_t low = 0;
  };
  std::vector<Node> nodes_;
  std::vector<std::int32_t> next_;
};

}  // namespace mantissa::tokenizer
