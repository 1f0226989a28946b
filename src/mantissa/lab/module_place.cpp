#include "mantissa/lab/module_place.h"

#include <algorithm>
#include <charconv>
#include <set>

namespace mantissa::lab {

ModulePlace::ModulePlace(std::string_view scope) : module(scope) {
  for (std::size_t from = 0; from < scope.size();) {
    const std::size_t end = std::min(scope.find('.', from), scope.size());
    const std::string_view part = scope.substr(from, end - from);
    int number = 0;
    const auto [rest, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (!part.empty() && error == std::errc() && rest == part.data() + part.size() && number >= 0) {
      layer = number;
      stack = scope.substr(0, from > 0 ? from - 1 : 0);
      module = end < scope.size() ? scope.substr(end + 1) : "";
      return;
    }
    from = end + 1;
  }
}

std::string ModulePlace::row() const {
  if (layer >= 0) return stack + "." + std::to_string(layer);
  for (const std::string_view suffix : {".weight", ".bias"})
    if (module.ends_with(suffix)) return module.substr(0, module.size() - suffix.size());
  return module;
}

std::string ModulePlace::label() const {
  if (layer >= 0) return std::to_string(layer);
  const std::string name = row();
  return name.substr(name.rfind('.') + 1);  // the whole name without a dot
}

std::vector<ModulePlace> rows_in_order(const std::vector<std::string>& scopes) {
  std::vector<ModulePlace> out;
  std::set<std::string> seen;
  for (const std::string& scope : scopes) {
    ModulePlace place(scope);
    if (!seen.insert(place.row()).second) continue;
    auto at = out.end();
    if (place.layer >= 0) {
      // After the last layer of the stack that is lower.
      const auto in_stack = [&](const ModulePlace& p) { return p.layer >= 0 && p.stack == place.stack; };
      at = std::ranges::find_if(out,
                                [&](const ModulePlace& p) { return in_stack(p) && p.layer > place.layer; });
      if (at == out.end())
        for (auto i = out.begin(); i != out.end(); ++i)
          if (in_stack(*i)) at = i + 1;
    }
    out.insert(at, std::move(place));
  }
  return out;
}

}  // namespace mantissa::lab
