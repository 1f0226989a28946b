// Hash tables that are built once and then only read.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::tokenizer {

inline std::uint64_t mix(std::uint64_t value) {
  value *= 0x9E3779B97F4A7C15U;
  return value ^ value >> 29;
}

inline std::uint64_t hash_bytes(std::string_view text) {
  std::uint64_t hash = text.size();
  while (text.size() >= sizeof hash) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data(), sizeof word);
    hash = mix(hash ^ word) + word;
    text.remove_prefix(sizeof word);
  }
  std::uint64_t word = 0;
  for (const char c : text) word = word << 8 | static_cast<unsigned char>(c);
  return mix(mix(hash ^ word) + 0xD6E8FEB86659FD93U);
}

/// From 64-bit keys to values. The key ~0 is not allowed.
template <class Value>
class IntegerMap {
 public:
  explicit IntegerMap(std::size_t expected = 0) { resize(expected); }

  /// Sets the value of `key`, replacing an earlier one.
  void set(std::uint64_t key, const Value& value) {
    if ((count_ + 1) * 2 > slots_.size()) resize(slots_.size());
    Slot& slot = slots_[place(key)];
    if (slot.key == kFree) ++count_;
    slot = {key, value};
  }
  const Value* find(std::uint64_t key) const {
    const Slot& slot = slots_[place(key)];
    return slot.key == kFree ? nullptr : &slot.value;
  }

 private:
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kFree;
    Value value{};
  };

  std::size_t place(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = mix(key) >> 32 & mask;
    while (slots_[at].key != key && slots_[at].key != kFree) at = (at + 1) & mask;
    return at;
  }
  void resize(std::size_t expected) {
    std::size_t size = 16;
    while (size < expected * 2) size *= 2;
    std::vector<Slot> old(size);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != kFree) slots_[place(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t count_ = 0;
};

/// From strings to 32-bit ids. Keeps a copy of the strings.
class StringMap {
 public:
  explicit StringMap(std::size_t expected = 0) { resize(expected); }

  /// Sets the id of `key`, replacing an earlier one.
  void set(std::string_view key, std::int32_t id) {
    if ((count_ + 1) * 2 > slots_.size()) resize(slots_.size());
    Slot& slot = slots_[place(key)];
    if (slot.id < 0) {
      ++count_;
      slot.offset = bytes_.size();
      slot.length = static_cast<std::uint32_t>(key.size());
      bytes_ += key;
    }
    slot.id = id;
  }
  std::optional<std::int32_t> find(std::string_view key) const {
    const Slot& slot = slots_[place(key)];
    return slot.id < 0 ? std::nullopt : std::optional(slot.id);
  }
  std::size_t size() const { return count_; }

 private:
  struct Slot {
    std::uint64_t offset = 0;
    std::uint32_t length = 0;
    std::int32_t id = -1;  // free
  };

  std::string_view text(const Slot& slot) const {
    return std::string_view(bytes_).substr(slot.offset, slot.length);
  }
  std::size_t place(std::string_view key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash_bytes(key) >> 20 & mask;
    while (slots_[at].id >= 0 && text(slots_[at]) != key) at = (at + 1) & mask;
    return at;
  }
  void resize(std::size_t expected) {
    std::size_t size = 16;
    while (size < expected * 2) size *= 2;
    std::vector<Slot> old(size);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.id >= 0) slots_[place(text(slot))] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::string bytes_;
  std::size_t count_ = 0;
};

}  // namespace mantissa::tokenizer
