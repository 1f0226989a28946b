// The ids of words that occurred before.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/text/tokenizer/flat_map.h"

namespace mantissa::tokenizer {

/// Holds a bounded number of short words, and forgets all when it is full. For one thread.
class WordCache {
 public:
  static constexpr std::size_t kLongestWord = 256;

  WordCache() : slots_(kSlots) {}

  /// Appends the ids of `word` and returns true, if they are known.
  bool append(std::string_view word, std::vector<std::int32_t>& ids) const {
    const std::uint64_t hash = hash_bytes(word);
    for (std::size_t at = hash >> 20 & (kSlots - 1); slots_[at].count != 0; at = (at + 1) & (kSlots - 1)) {
      const Slot& slot = slots_[at];
      if (slot.hash != hash || slot.length != word.size() ||
          std::string_view(bytes_).substr(slot.word, slot.length) != word)
        continue;
      if (slot.count == 1) {
        ids.push_back(ids_[slot.ids]);
      } else {
        ids.insert(ids.end(), ids_.begin() + slot.ids, ids_.begin() + slot.ids + slot.count);
      }
      return true;
    }
    return false;
  }

  /// Keeps the ids of a word that append did not find.
  void keep(std::string_view word, std::span<const std::int32_t> ids) {
    if (word.size() > kLongestWord || ids.empty()) return;
    if (used_ * 2 >= kSlots || bytes_.size() > kMostBytes) {
      slots_.assign(kSlots, Slot());
      bytes_.clear();
      ids_.clear();
      used_ = 0;
    }
    const std::uint64_t hash = hash_bytes(word);
    std::size_t at = hash >> 20 & (kSlots - 1);
    while (slots_[at].count != 0) at = (at + 1) & (kSlots - 1);
    slots_[at] = {hash, static_cast<std::uint32_t>(bytes_.size()), static_cast<std::uint32_t>(ids_.size()),
                  static_cast<std::uint16_t>(word.size()), static_cast<std::uint16_t>(ids.size())};
    bytes_ += word;
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    ++used_;
  }

 private:
  static constexpr std::size_t kSlots = 1 << 16;
  static constexpr std::size_t kMostBytes = 2 << 20;
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t word = 0, ids = 0;
    std::uint16_t length = 0, count = 0;  // count 0: free
  };

  std::vector<Slot> slots_;
  std::string bytes_;
  std::vector<std::int32_t> ids_;
  std::size_t used_ = 0;
};

}  // namespace mantissa::tokenizer
