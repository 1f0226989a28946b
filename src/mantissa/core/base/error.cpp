#include "mantissa/core/base/error.h"

#include <utility>

#include "mantissa/core/base/printable.h"
#include "mantissa/core/base/words.h"

namespace mantissa {
namespace {

std::string with_cures(const std::string& message, const std::vector<Cure>& cures) {
  std::string text = message;
  for (std::size_t i = 0; i < cures.size(); ++i) {
    text += i == 0 ? ". Fix: " : ", or ";
    text += shell_words(cures[i].arguments);
    if (!cures[i].remark().empty()) text += " (" + cures[i].remark() + ")";
  }
  return text;
}

}  // namespace

std::string Warning::str() const {
  return with_cures(text, cures);
}

Error::Error(const std::string& message, std::vector<Cure> cures)
    : std::runtime_error(with_cures(printable(message), cures)),
      message_(printable(message)),
      cures_(std::move(cures)) {}

}  // namespace mantissa
