// String literals of Python, as the RWKV vocabulary writes its tokens. Nothing is evaluated.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mantissa::tokenizer {

/// Returns the bytes of a literal 'text', "text", b'bytes' or b"bytes"; those of a text in UTF-8. Returns
/// null if `literal` is anything else, has an escape that Python does not define or that names a character
/// (\N{…}), or contains a surrogate.
std::optional<std::string> bytes_of_literal(std::string_view literal);

}  // namespace mantissa::tokenizer
