// Search for many strings in one pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace mantissa::tokenizer {

/// Finds the first of a set of strings in a text, and the longest of those that begin there. An automaton of
/// Aho and Corasick, "Efficient string matching: an aid to bibliographic search" (1975): a search reads each
/// byte of the text once, up to the bytes after a match that might have made it longer.
class MultiSearch {
 public:
  /// `patterns` are distinct and not empty. They are copied.
  explicit MultiSearch(const std::vector<std::string_view>& patterns);

  struct Match {
    std::size_t start = 0, end = 0;
    std::size_t pattern = 0;  // its index
  };
  /// Returns the match in `text` that starts at or after `from`, or null.
  std::optional<Match> find(std::string_view text, std::size_t from) const;

 private:
  static constexpr std::uint32_t kRoot = 0, kNone = ~std::uint32_t{0};

  // A prefix of patterns. Its children have consecutive numbers.
  struct Node {
    std::uint32_t first_child = 0, children = 0;
    std::uint32_t suffix = kRoot;  // the longest proper suffix that is a prefix, too
    std::uint32_t length = 0;
    std::uint32_t pattern = kNone, pattern_length = 0;  // the longest pattern at the end of this prefix
  };

  std::uint32_t child(const Node& node, unsigned char byte) const;
  void link(std::uint32_t node);
  void make_table();
  std::uint32_t next(std::uint32_t state, unsigned char byte) const;

  std::vector<Node> nodes_;
  std::vector<unsigned char> bytes_;  // the last byte of each node
  std::uint32_t from_root_[256];      // kNone: no child
  // If it is small, the next state of every state, for each class of bytes: those of no pattern are one
  // class.
  std::vector<std::uint32_t> table_;
  std::uint32_t classes_ = 1;
  unsigned char class_of_[256] = {};
};

}  // namespace mantissa::tokenizer
