#include "mantissa/text/tokenizer/settings.h"

#include <optional>
#include <utility>
#include <vector>

#include "mantissa/core/base/error.h"

namespace mantissa::tokenizer {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::optional<std::int32_t> separator_of(const Tokenizer& tokenizer) {
  try {
    return tokenizer.separator();
  } catch (const ConfigError&) {
    return std::nullopt;  // a tokenizer may have none
  }
}

/// Returns the special token that the tokenizer puts before every text, or null.
std::optional<std::int32_t> token_before_text(const Tokenizer& tokenizer) {
  const std::vector<std::int32_t> of_nothing = tokenizer.encode_with_template("");
  if (of_nothing.empty() || !tokenizer.special(of_nothing.front())) return std::nullopt;
  return of_nothing.front();
}

}  // namespace

OrderedJson special_tokens(const Tokenizer& tokenizer) {
  OrderedJson tokens = OrderedJson::object();
  const std::optional<std::int32_t> separator = separator_of(tokenizer);
  if (!separator) return tokens;
  std::optional<std::int32_t> begin = tokenizer.bos();
  if (!begin) begin = token_before_text(tokenizer);
  const auto put = [&](const char* name, std::int32_t id) {
    if (std::optional<std::string> token = tokenizer.token_of(id)) tokens[name] = std::move(*token);
  };
  put("bos_token", begin.value_or(*separator));
  put("eos_token", *separator);
  put("pad_token", *separator);
  return tokens;
}

std::string settings_json(const Tokenizer& tokenizer, FileForm form) {
  OrderedJson settings = special_tokens(tokenizer);
  settings["tokenizer_class"] = "PreTrainedTokenizerFast";
  settings["clean_up_tokenization_spaces"] = false;  // transformers would remove spaces before punctuation
  if (form == FileForm::sentencepiece) {
    settings["add_bos_token"] = false;
    settings["add_eos_token"] = false;
    settings["legacy"] = true;  // a space before the first word also if the text begins with one
  }
  constexpr auto kReplace = OrderedJson::error_handler_t::replace;  // a token may hold any bytes
  return settings.dump(1, ' ', false, kReplace) + "\n";
}

}  // namespace mantissa::tokenizer
