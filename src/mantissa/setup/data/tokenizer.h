// The tokenizer of a model directory or a config, and its files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::data {

/// Entries of the byte tokenizer.
inline constexpr std::int64_t kByteEntries = 256;

/// Returns the tokenizer file of a model directory, also one of an unsupported kind, or an empty path.
std::filesystem::path tokenizer_file(const std::filesystem::path& directory);

/// Returns true if the model's directory has a tokenizer file, or its GGUF file a vocabulary, also of an
/// unsupported kind.
bool has_vocabulary(const weights::ModelSource& source);

/// Returns the tokenizer in the model's directory or GGUF file. Without a vocabulary, returns the byte
/// tokenizer for a model with 256 entries, otherwise null, as for one of an unsupported kind. Throws
/// FileError for a damaged file.
std::unique_ptr<tokenizer::Tokenizer> tokenizer_of(const weights::ModelSource& source);

/// Returns why tokenizer_of() returns null: the tokenizer file, or the size of the vocabulary.
std::string why_no_tokenizer(const weights::ModelSource& source);

/// Returns the tokenizer that `spec` names, as tokenizer::make_tokenizer does, or that of a GGUF file. Throws
/// ConfigError if a GGUF file has a vocabulary that is not supported.
std::unique_ptr<tokenizer::Tokenizer> make_tokenizer(const std::string& spec);

/// Returns the place of the config's tokenizer: a GGUF file, or a directory, which is model.path, the model
/// of a run, or that of model.config. Both are empty for a model written in the config. `model` is its
/// config.
weights::ModelSource origin_of(const config::ModelSection& section, const model::ModelConfig& model);

/// Returns the tokenizer that data.tokenizer names. "model" is the one in the model's directory or GGUF file.
/// Throws ConfigError or FileError if there is none.
std::unique_ptr<tokenizer::Tokenizer> tokenizer_of(const config::RunConfig& config,
                                                   const model::ModelConfig& model);

/// Returns the files, by name, that a model written by the run of `config` needs for its text: the tokenizer
/// file and the settings beside it, or settings with which transformers reads it; of a model directory also
/// the chat template and the generation settings. `model` is the config's; `in_memory` is true if the run
/// reads no file of [data], whose ids are bytes only with a vocabulary of 256 entries.
std::vector<std::pair<std::string, std::string>> files_of_tokenizer(const config::RunConfig& config,
                                                                    const model::ModelConfig& model,
                                                                    bool in_memory = false);

}  // namespace mantissa::data
