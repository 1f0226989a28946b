// Errors of checkpoints of PyTorch that cannot be read.
#pragma once

#include <string_view>

#include "mantissa/core/base/error_text.h"

namespace mantissa::io::pth {

/// The cure of a fault that torch.load may not share.
inline constexpr std::string_view kSaveTensors =
    "if torch.load reads the file, save its tensors again: torch.save(model.state_dict(), FILE); else "
    "download it again";

/// Throws FileError: the file `where`, what is wrong, and the cure.
[[noreturn]] inline void fail_file(std::string_view where, std::string_view what,
                                   std::string_view cure = kSaveTensors) {
  throw FileError("{}: {}. Fix: {}", where, what, cure);
}

}  // namespace mantissa::io::pth
