#include "mantissa/text/chat/error.h"

#include <fmt/format.h>

namespace mantissa::chat {

TemplateError::TemplateError(const std::string& name, Place place, const std::string& message)
    : Error(fmt::format("{}:{}:{}: {}", name, place.line, place.column, message)), place_(place) {}

RaisedByTemplate::RaisedByTemplate(const std::string& name, Place place, const std::string& raised)
    : TemplateError(
          name, place,
          fmt::format("the chat template rejects this conversation: {}. Fix: change the messages, or "
                      "choose another template by data.template or --template",
                      raised)),
      raised_(raised) {}

}  // namespace mantissa::chat
