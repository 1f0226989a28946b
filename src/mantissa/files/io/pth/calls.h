// What the calls of a pickle give: PyTorch's functions, applied by description instead of being run.
#pragma once

#include <string>

#include "mantissa/files/io/pth/pickle.h"

namespace mantissa::io::pth {

/// Adds values to a pickle that is being parsed.
class Calls {
 public:
  /// `where` names the file in errors, which are FileErrors.
  Calls(Pickle& pickle, const std::string& where) : pickle_(pickle), where_(where) {}

  /// Adds a value. Throws if there are too many.
  Value* add(Value::Kind kind);
  /// Adds the global `module`.`name`. Throws if it is not known.
  Value* global(std::string_view module, std::string_view name);
  /// Adds the storage that `id` names, a tuple ("storage", type, key, device, number of elements).
  Value* storage(const Value& id);
  /// Adds the result of `callable`(`arguments`...).
  Value* call(const Value& callable, const Value& arguments);

 private:
  Value* tensor(const Value& arguments, bool typed);
  Value* ordered_dict(const Value& arguments);
  Value* container(Value::Kind kind, const Value& arguments);
  std::vector<std::int64_t> sizes(const Value& value) const;
  void require(bool holds, const char* what) const;

  Pickle& pickle_;
  const std::string& where_;
};

}  // namespace mantissa::io::pth
