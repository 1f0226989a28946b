// The text of a tokenizer's ids, at once and one by one.
#pragma once

#include <span>
#include <string>

#include "check.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::fuzz {

/// Requires that the parts of a stream are the text of `ids`.
inline void require_stream(const tokenizer::Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  const std::string text = tokenizer.decode(ids);
  tokenizer::TextStream stream(tokenizer);
  std::string joined;
  for (const std::int32_t id : ids) joined += stream.push(id);
  joined += stream.finish();
  require(joined == text, "the parts of a stream are the text");
}

/// Encodes some texts, and decodes their ids and others.
inline void use(const tokenizer::Tokenizer& tokenizer) {
  for (const std::string_view text :
       {"", "Hello  world's 123\r\n", "e\xCC\x81 \xF0\x9F\x91\x8D\xE2\x96\x81<s>", "\xFF\xC0 a"}) {
    expect_only_errors([&] {
      const std::vector<std::int32_t> ids = tokenizer.encode_with_template(text);
      for (const std::int32_t id : ids)
        require(id >= 0 && id < tokenizer.vocabulary(), "an id is in the vocabulary");
      require_stream(tokenizer, ids);
    });
  }
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; id < 300; ++id) {
    if (tokenizer.known(id)) ids.push_back(id);
  }
  expect_only_errors([&] { require_stream(tokenizer, ids); });
}

}  // namespace mantissa::fuzz
