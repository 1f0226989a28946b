// The tokenizer of token shards against that of the run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/text/rows/sources.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::data {

/// Throws ConfigError if a token file among `files` states in its header that other ids are in it than those
/// of `tokenizer`, with both names. `tokenizer` is called if a file states its tokenizer, and may return null
/// for a model without one. `key` is where the tokenizer was chosen: "data.tokenizer". Files of text, and of
/// ids without such a header, pass.
void check_shards(const std::vector<std::string>& files, const text::FileFormat& format,
                  const std::function<std::unique_ptr<tokenizer::Tokenizer>()>& tokenizer,
                  const std::string& key);

/// Returns true if the header of a token file among `files` states its tokenizer.
bool shards_state_tokenizer(const std::vector<std::string>& files, const std::string& format);

/// The tokenizer that token files state in their headers.
struct StatedTokenizer {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;  // null: its files are missing or give other ids now
  std::int64_t vocabulary = 0;                      // entries; 0: no file states its tokenizer
  std::string note;                                 // for the user, why `tokenizer` is null; otherwise empty
};

/// Returns the tokenizer that the files name. Throws ConfigError if they name different ones, because their
/// ids are then not one stream.
StatedTokenizer tokenizer_of_shards(const std::vector<std::string>& files, const std::string& format);

}  // namespace mantissa::data
