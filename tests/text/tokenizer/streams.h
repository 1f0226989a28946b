// The text of ids that arrive one by one.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <span>
#include <string>
#include <vector>

#include "mantissa/text/tokenizer/tokenizer.h"
#include "mantissa/text/tokenizer/utf8.h"

namespace mantissa::tokenizer {

/// Returns the joined parts of a stream. Expects parts of whole characters if the text is UTF-8.
inline std::string streamed(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  const auto is_utf8 = [](const std::string& text) {
    std::string repaired;
    return repair_utf8(text, repaired) == text;
  };
  const bool whole = is_utf8(tokenizer.decode(ids));
  TextStream stream(tokenizer);
  std::string joined;
  const auto add = [&](const std::string& part) {
    EXPECT_TRUE(is_utf8(part) || !whole) << "after " << joined;
    joined += part;
  };
  for (const std::int32_t id : ids) add(stream.push(id));
  add(stream.finish());
  return joined;
}

/// Expects that streams of random ids join to what decode() returns. Ids are drawn from ranges of all sizes,
/// so that runs of byte tokens occur, which are neighbours in most vocabularies.
inline void expect_streams_join(const Tokenizer& tokenizer, const std::string& name) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  const auto all = static_cast<std::int32_t>(tokenizer.vocabulary());
  for (int round = 0; round < 300; ++round) {
    const std::int32_t first = static_cast<std::int32_t>(random() % static_cast<unsigned>(all));
    const std::int32_t last =
        first + static_cast<std::int32_t>(random() % static_cast<unsigned>(all - first));
    std::uniform_int_distribution<std::int32_t> draw(first, last);
    std::vector<std::int32_t> ids(1 + random() % 24);
    for (std::int32_t& id : ids) {
      do id = draw(random);
      while (!tokenizer.known(id) && tokenizer.known(first));
    }
    std::erase_if(ids, [&](std::int32_t id) { return !tokenizer.known(id); });
    const std::string text = tokenizer.decode(ids);
    EXPECT_EQ(streamed(tokenizer, ids), text) << name << ", seed " << kSeed << ", round " << round;
    // Only replaced bytes have another length in the text.
    if (text.find("\uFFFD") == std::string::npos) {
      EXPECT_EQ(tokenizer.count_bytes(ids), text.size()) << name << ", seed " << kSeed << ", round " << round;
    }
  }
}

}  // namespace mantissa::tokenizer
