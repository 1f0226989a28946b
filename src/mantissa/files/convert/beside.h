// The files beside the weights of a model, such as its tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace mantissa::convert {

inline constexpr std::uint64_t kLargestBeside = std::uint64_t{1} << 30;  // bytes of a tokenizer file

/// True for weight files of other kinds. They are not rewritten and would contradict the rewritten ones.
bool is_other_weights(const std::filesystem::path& file);

/// Copies the files of the tokenizer that the run of `state` keeps, if it has one, into the directory `to`.
/// Returns their names.
std::vector<std::string> copy_tokenizer_of_state(const std::filesystem::path& state,
                                                 const std::filesystem::path& to);

}  // namespace mantissa::convert
