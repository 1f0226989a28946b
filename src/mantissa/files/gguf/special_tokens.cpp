#include "mantissa/files/gguf/special_tokens.h"

#include <fmt/format.h>

#include "mantissa/files/gguf/rwkv_vocabulary.h"
#include "mantissa/files/gguf/split_patterns.h"

namespace mantissa::gguf {

SpecialTokens special_tokens(const GgufFile& file) {
  const Texts* tokens = file.texts("tokenizer.ggml.tokens");
  const auto id = [&](const char* name) -> std::optional<std::int64_t> {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    const std::optional<std::int64_t> found = file.integer(key);
    if (!found || *found == 0xFFFFFFFF || *found == -1) return std::nullopt;  // none
    if (*found < 0 || (tokens != nullptr && static_cast<std::size_t>(*found) >= tokens->size()))
      file.fail(fmt::format("{} is {}, which is not in the vocabulary", key, *found));
    return found;
  };
  SpecialTokens special;
  special.bos = id("bos");
  special.eos = id("eos");
  special.unknown = id("unknown");
  special.pad = id("padding");
  special.end_of_turn = id("eot");
  if (file.text("tokenizer.ggml.model") == kRwkvModel) {
    // Id 0 is between documents. The end of llama.cpp's chats, an empty line, is in the middle of other
    // texts.
    special.bos = special.bos.value_or(0);
    special.eos = special.eos.value_or(0);
    special.end_of_turn.reset();
  }
  const bool sentencepiece = file.text("tokenizer.ggml.model") == "llama";
  const SplitPattern* split = find_split(file.text("tokenizer.ggml.pre").value_or(""));
  const bool by_default = sentencepiece || (split != nullptr && split->begins_texts);
  special.add_bos = file.flag("tokenizer.ggml.add_bos_token").value_or(by_default) && special.bos;
  special.add_eos = file.flag("tokenizer.ggml.add_eos_token").value_or(false) && special.eos;
  return special;
}

}  // namespace mantissa::gguf
