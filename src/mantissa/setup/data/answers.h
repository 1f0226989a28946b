// The part of a conversation that training predicts: the answers of the assistant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/setup/data/chat_format.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::data {

/// A part [first, second) of a text in bytes, or of ids.
using Span = std::pair<std::size_t, std::size_t>;

/// Returns true for a message of the assistant.
bool is_assistant(const nlohmann::ordered_json& message);

/// Which messages are trained: all of the assistant, the last of these, or the whole conversation.
enum class TrainOn : std::uint8_t { assistant, last, all };
TrainOn parse_train_on(std::string_view name);

/// A conversation as ids, and its trained parts in order: `answers` are spans of the ids.
struct AnswerIds {
  std::vector<std::int32_t> ids;
  std::vector<Span> answers = {};
};

/// Renders the conversation once and encodes the text once, so the ids are those of transformers'
/// apply_chat_template. A trained part is what a {% generation %} block of the template wrote, and has every
/// token with a character of it, as transformers' assistant mask. Without such blocks an answer begins where
/// the template puts the prompt's end before it, and ends with the token that ends the turn. If the
/// tokenizer's end token has no text (RWKV's 0), it follows a conversation that ends with an answer, as a
/// part of it. Throws FileError, beginning with `where`, if the template rejects the conversation, or if it
/// has no such blocks and renders an earlier message in another way once later ones follow.
AnswerIds answer_ids(const ChatFormat& format, const tokenizer::Tokenizer& tokenizer,
                     const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                     TrainOn train_on, const std::string& where);

/// Returns the spans of `ids`, the tokens of `text`, that have the characters of `parts`: from the first
/// token with a byte of a part through the last. `parts` are in order and do not overlap.
std::vector<Span> token_spans(const tokenizer::Tokenizer& tokenizer, std::span<const std::int32_t> ids,
                              std::string_view text, std::span<const Span> parts);

}  // namespace mantissa::data
