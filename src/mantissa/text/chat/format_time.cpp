// datetime.strftime.
#include <fmt/format.h>

#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/format.h"

namespace mantissa::chat {

std::string format_time(std::string_view format, const LocalTime& time) {
  std::string out;
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%' || at + 1 >= format.size()) {
      out += format[at];
      continue;
    }
    std::string one = "%";
    one += format[++at];
    if (one == "%-" && at + 1 < format.size()) one += format[++at];
    static constexpr std::string_view kKnown = "aAbBcdDeFgGhHIjklmMnprRsStTuUVwWxXyY%C";
    if (one == "%f") {
      out += fmt::format("{:06}", time.microsecond);
    } else if (one == "%z" || one == "%Z") {
      continue;  // a time without a zone has neither
    } else if (kKnown.find(one.back()) != std::string_view::npos) {
      char buffer[128];
      out.append(buffer, std::strftime(buffer, sizeof buffer, one.c_str(), &time.calendar));
    } else {
      throw Fault("the time format '{}' is not supported", one);
    }
  }
  return out;
}

}  // namespace mantissa::chat
