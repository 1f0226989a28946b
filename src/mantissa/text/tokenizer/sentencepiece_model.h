// What the library sentencepiece does not check of a model.
#pragma once

#include <string_view>

namespace mantissa::tokenizer {

/// Returns true if the character maps of the normalizers of a serialized ModelProto are is_whole_charsmap()
/// or empty, and false also if the bytes are no message of fields (protobuf's wire format). The library
/// follows a map's trie to wherever it points.
bool has_whole_charsmaps(std::string_view model);

}  // namespace mantissa::tokenizer
