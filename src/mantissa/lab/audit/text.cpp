#include <fmt/format.h>

#include "mantissa/core/base/words.h"
#include "mantissa/lab/audit/audit.h"

namespace mantissa::lab {

std::string to_text(const Audit& audit) {
  std::string text = audit.verdict + "\n";
  for (std::size_t i = 0; i < audit.findings.size(); ++i) {
    const Finding& f = audit.findings[i];
    text += fmt::format("\n{:>3}  {:<15} {}\n", i + 1, f.kind, f.text);
    const std::string command = !f.cure ? "" : f.command.empty() ? shell_words(f.cure->arguments) : f.command;
    if (f.cure)
      text +=
          fmt::format("     cure{}:\n        {}\n", f.cure->tested ? " (tested)" : " (not tested)", command);
    for (const Alternative& a : f.alternatives)
      text += fmt::format("     also works: {} ({:.1f} MB in all)\n", shell_words(a.cure.arguments),
                          static_cast<double>(a.memory) / 1e6);
    if (!f.remark.empty()) text += fmt::format("     {}\n", f.remark);
  }
  return text;
}

}  // namespace mantissa::lab
