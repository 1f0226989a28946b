// The end of generated answers at the texts with which a chat template ends a turn.
#pragma once

#include <cstddef>

#include "mantissa/generate/rollout/generate.h"
#include "mantissa/setup/data/chat_format.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::dialog {

/// Returns a function that ends each of `requests` answers at the token that completes one of
/// ChatFormat::turn_ends(). Null without a template (null) and for one that has none: then ids alone end
/// answers. `tokenizer` must outlive the function.
rollout::OnToken until_turn_ends(const tokenizer::Tokenizer& tokenizer, const data::ChatFormat* format,
                                 std::size_t requests);

}  // namespace mantissa::dialog
