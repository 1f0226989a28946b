// Knights-and-Knaves puzzles as data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "mantissa/setup/config/run_config.h"
#include "mantissa/text/puzzles/kk.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::data {

/// The name of generated puzzles in messages.
inline constexpr const char* kPuzzles = "the puzzles of kk";

/// Returns true for {"kk"}.
bool names_puzzles(const std::vector<std::string>& source);
/// Returns true if "kk" is among the entries of a mixture.
bool has_puzzles(const std::vector<std::string>& source);
/// Returns true if any of the entries, "kk" or files, is text that a tokenizer turns into ids.
bool holds_text(const std::vector<std::string>& source, const std::string& format);

/// Returns the puzzles of a config's training data.
text::KkOptions training_puzzles(const config::RunConfig& config);
/// Return the held-out puzzles with the same numbers of people, and those for a model without a config.
text::KkOptions held_out_puzzles(const config::RunConfig& config);
text::KkOptions held_out_puzzles();

/// Returns the documents of the puzzles, with a separator after each: all of them, or the first that have
/// more than `most` tokens.
std::vector<std::int32_t> puzzle_tokens(const text::KkOptions& options, const tokenizer::Tokenizer& tokenizer,
                                        std::int64_t most = INT64_MAX);

/// Writes the puzzles to the file `out`, one JSON object on each line. Throws FileError if `out` exists,
/// unless `overwrite`, and ResourceError if the disk is full; the old file then keeps its contents.
void write_puzzles(const text::KkOptions& options, const std::filesystem::path& out, bool overwrite);

}  // namespace mantissa::data
