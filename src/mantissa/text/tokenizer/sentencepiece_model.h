// What the library sentencepiece does not check of a model.
#pragma once

#include <string_view>

namespace mantissa::tokenizer {

/// Returns true if `model`, a serialized ModelProto, is a well-formed protobuf message in which every
/// character map of a normalizer is empty or satisfies is_whole_charsmap(). The library does not check where
/// the trie of a map leads, and reads whatever memory it points to.
bool has_whole_charsmaps(std::string_view model);

}  // namespace mantissa::tokenizer
