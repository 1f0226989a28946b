// The tokenizer files of a Hugging Face directory as metadata of a GGUF file.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/files/gguf/header_writer.h"
#include "mantissa/files/gguf/rwkv_vocabulary.h"

namespace mantissa::gguf {

/// Returns the contents of a file of the model's directory, or null without it.
using ReadFile = std::function<std::optional<std::string>(std::string_view name)>;

/// Adds tokenizer.ggml.* and the chat template from tokenizer.json, tokenizer_config.json and
/// chat_template.jinja. Byte-level BPE with a known split becomes "gpt2", BPE with byte fallback "llama" with
/// scores in the order of the merges, and without a tokenizer.json an RWKV vocabulary becomes "rwkv". Without
/// a tokenizer of these kinds the vocabulary is "none"; the ids of the special tokens in config.json and
/// generation_config.json are written all the same. Returns notes for the user. Throws FileError if a file is
/// not valid, with the name that it has in `folder`.
std::vector<std::string> write_tokenizer(const ReadFile& read, const std::filesystem::path& folder,
                                         const model::ModelConfig& config, HeaderWriter& header);

}  // namespace mantissa::gguf
