#include "mantissa/text/chat/arguments.h"

#include "mantissa/text/chat/error.h"

namespace mantissa::chat {

std::optional<Value> Arguments::take(std::string_view name) {
  for (auto it = named.begin(); it != named.end(); ++it) {
    if (it->first != name) continue;
    Value value = std::move(it->second);
    named.erase(it);
    return value;
  }
  return std::nullopt;
}

Parameters::Parameters(std::string_view function, Arguments& arguments,
                       std::initializer_list<std::string_view> names, std::size_t required)
    : function_(function), names_(names), values_(names.size()) {
  if (arguments.positional.size() > names_.size()) {
    throw Fault("{} takes at most {} arguments, got {}", function, names_.size(),
                arguments.positional.size());
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    values_[i] = std::move(arguments.positional[i]);
  for (auto& [name, value] : arguments.named) {
    const auto it = std::find(names_.begin(), names_.end(), name);
    if (it == names_.end()) throw Fault("{} has no parameter '{}'", function, name);
    auto& slot = values_[static_cast<std::size_t>(it - names_.begin())];
    if (slot) throw Fault("{} got two values for '{}'", function, name);
    slot = std::move(value);
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!values_[i]) throw Fault("{} needs the argument '{}'", function, names_[i]);
  }
}

void Parameters::wrong(std::size_t i, std::string_view expected) const {
  require_defined(*values_[i]);
  throw Fault("the argument '{}' of {} must be {}, not {}", names_[i], function_, expected,
              type_name(*values_[i]));
}

bool Parameters::flag(std::size_t i, bool preset) const {
  return values_[i] ? truth(*values_[i]) : preset;
}

std::int64_t Parameters::integer(std::size_t i, std::int64_t preset) const {
  return values_[i] ? integer(i) : preset;
}

std::int64_t Parameters::integer(std::size_t i) const {
  const auto n = values_[i]->as_integer();
  if (!n) wrong(i, "an integer");
  return *n;
}

const std::string& Parameters::text(std::size_t i) const {
  if (!values_[i]->text()) wrong(i, "a string");
  return values_[i]->text()->bytes;
}

}  // namespace mantissa::chat
