#include <fmt/format.h>

#include "mantissa/base/words.h"
#include "mantissa/lab/audit/audit.h"

namespace mantissa::lab {

std::string to_text(const Audit& audit) {
  std::string text = audit.verdict + "\n";
  for (std::size_t i = 0; i < audit.findings.size(); ++i) {
    const Finding& f = audit.findings[i];
    text += fmt::format("\n{:>3}  {:<15} {}\n", i + 1, f.kind, f.text);
    if (f.cure) {
      text += fmt::format("     cure{}: {}\n", f.cure->tested ? " (tested)" : " (not tested)",
                          shell_words(f.cure->arguments));
    }
  }
  return text;
}

}  // namespace mantissa::lab
