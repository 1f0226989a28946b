// The kinds of tokenizer files.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::tokenizer {

/// One kind of file.
struct Kind {
  const char* files;                                   // for messages: "*.json (Hugging Face)"
  bool (*is_default)(std::string_view name);           // true for the file used in a model directory
  bool (*matches)(const std::filesystem::path& file);  // decides by the name
  std::unique_ptr<Tokenizer> (*read)(const std::filesystem::path& file);
};

/// Returns the tokenizer file of a directory, or an empty path.
std::filesystem::path find_in_directory(const std::filesystem::path& directory);

/// The folder of a run in which the files of its tokenizer are, also before the run has a model.
inline constexpr const char* kRunFolder = "tokenizer";

/// Returns the directory with the files of the tokenizer for `path`. A run stands for its `model`, or,
/// without one, for its kRunFolder; a state stands for its run. Any other path is returned as it is.
std::filesystem::path files_directory(const std::filesystem::path& path);

/// Returns the tokenizer of bytes.
std::unique_ptr<Tokenizer> byte_tokenizer();

/// Returns the text of a tokenizer.json that gives other programs the ids of the byte tokenizer: each byte of
/// UTF-8 text is its id, and the separator is the special token "\0".
std::string byte_tokenizer_json();
/// Returns true for the text of byte_tokenizer_json(). Such a file stands for the byte tokenizer, which keeps
/// bytes that are not UTF-8, too.
bool is_byte_tokenizer(std::string_view json);

/// Reads a Hugging Face tokenizer.json, and the names of its begin and end tokens from the
/// tokenizer_config.json beside it, if that exists. Ids equal those of the library `tokenizers` 0.23. Bytes
/// that are not UTF-8 become U+FFFD, as with Python's errors="replace". Truncation and padding are ignored,
/// as in transformers. The file of byte_tokenizer_json() gives the byte tokenizer. Throws FileError.
std::unique_ptr<Tokenizer> read_hf_tokenizer(const std::filesystem::path& file);

/// Returns the tokenizer of the texts of such files, of which `settings` may be empty. `name` is that of the
/// tokenizer in messages, and `settings_name` that of the settings.
std::unique_ptr<Tokenizer> parse_hf_tokenizer(const std::string& text, const std::string& name,
                                              const std::string& settings, const std::string& settings_name);

/// Reads a SentencePiece model. Ids are those of the library sentencepiece. Special tokens in the text are
/// not recognized. encode_with_template adds what "add_bos_token" and "add_eos_token" of the
/// tokenizer_config.json beside the file say. Throws FileError if the file cannot be read, and ConfigError
/// with the library's message if it is not a model.
std::unique_ptr<Tokenizer> read_sentencepiece_tokenizer(const std::filesystem::path& file);

/// Reads an RWKV vocabulary, one token a line: id, Python literal of str or bytes, number of bytes. Id 0 ends
/// a text. Throws FileError with the line.
std::unique_ptr<Tokenizer> read_rwkv_tokenizer(const std::filesystem::path& file);
/// Returns the tokenizer of the text of such a file. `name` is that of the tokenizer in messages.
std::unique_ptr<Tokenizer> parse_rwkv_tokenizer(const std::string& text, const std::string& name);

}  // namespace mantissa::tokenizer
