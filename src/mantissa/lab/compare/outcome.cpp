#include "mantissa/lab/compare/compare.h"

namespace mantissa::lab {

std::string_view name(Outcome outcome) {
  switch (outcome) {
    case Outcome::reference:
      return "reference";
    case Outcome::same:
      return "same";
    case Outcome::worse:
      return "worse";
    case Outcome::better:
      return "better";
    case Outcome::diverged:
      return "diverged";
    case Outcome::stopped:
      return "stopped";
    case Outcome::uncertain:
      return "uncertain";
    case Outcome::uninformative:
      return "uninformative";
    case Outcome::unknown:
      break;
  }
  return "unknown";
}

}  // namespace mantissa::lab
