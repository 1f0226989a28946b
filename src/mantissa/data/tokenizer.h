// The tokenizer of a model directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "mantissa/tokenizer/tokenizer.h"
#include "mantissa/weights/model_files.h"

namespace mantissa::data {

/// Entries of the byte tokenizer.
inline constexpr std::int64_t kByteEntries = 256;

/// Returns the tokenizer file of a model directory, or an empty path.
std::filesystem::path tokenizer_file(const std::filesystem::path& directory);

/// Returns the byte tokenizer for a model with 256 entries and no tokenizer file, otherwise null.
std::unique_ptr<tokenizer::Tokenizer> tokenizer_of(const weights::ModelSource& source);

/// Returns why tokenizer_of() returns null: the tokenizer file, or the size of the vocabulary.
std::string why_no_bytes(const weights::ModelSource& source);

}  // namespace mantissa::data
