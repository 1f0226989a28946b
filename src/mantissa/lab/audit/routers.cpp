#include "mantissa/lab/audit/routers.h"

#include <algorithm>

namespace mantissa::lab {

std::map<std::string, RouterStep> compare(const std::map<std::string, runtime::Choices>& seen,
                                          const std::map<std::string, runtime::Choices>& exact) {
  std::map<std::string, RouterStep> all;
  for (const auto& [scope, choices] : seen) {
    RouterStep& step = all[scope];
    step.chosen = choices.chosen;
    const auto other = exact.find(scope);
    if (other == exact.end() || other->second.experts.size() != choices.experts.size()) continue;
    step.tokens = std::ssize(choices.experts) / choices.chosen;
    for (std::int64_t t = 0; t < step.tokens; ++t) {
      const auto begin = choices.experts.begin() + t * choices.chosen;
      const bool same =
          std::equal(begin, begin + choices.chosen, other->second.experts.begin() + t * choices.chosen);
      step.changed += same ? 0 : 1;
    }
  }
  return all;
}

}  // namespace mantissa::lab
