// The tokenizer of a model directory or a config, and its files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/config/run_config.h"
#include "mantissa/model/config.h"
#include "mantissa/tokenizer/tokenizer.h"
#include "mantissa/weights/model_files.h"

namespace mantissa::data {

/// Entries of the byte tokenizer.
inline constexpr std::int64_t kByteEntries = 256;

/// Returns the tokenizer file of a model directory, also one of an unsupported kind, or an empty path.
std::filesystem::path tokenizer_file(const std::filesystem::path& directory);

/// Returns the tokenizer in the model's directory. Without a tokenizer file, returns the byte tokenizer for a
/// model with 256 entries, otherwise null, as for a file of an unsupported kind. Throws FileError for a
/// damaged file.
std::unique_ptr<tokenizer::Tokenizer> tokenizer_of(const weights::ModelSource& source);

/// Returns why tokenizer_of() returns null: the tokenizer file, or the size of the vocabulary.
std::string why_no_tokenizer(const weights::ModelSource& source);

/// Returns the directory of the config's model: model.path, the model of a run (or, without one, its
/// tokenizer), or that of model.config.
/// Empty for a model written in the config.
std::filesystem::path model_directory(const config::ModelSection& section);

/// Returns the tokenizer that data.tokenizer names. "model" is the one in the model's directory. Throws
/// ConfigError or FileError if there is none.
std::unique_ptr<tokenizer::Tokenizer> tokenizer_of(const config::RunConfig& config,
                                                   const model::ModelConfig& model);

/// Returns the files, by name, that a model written by the run of `config` needs for its text: the tokenizer
/// file and the settings beside it; of a model directory also the chat template and the generation settings.
std::vector<std::pair<std::string, std::string>> files_of_tokenizer(const config::RunConfig& config);

}  // namespace mantissa::data
