#include "mantissa/files/io/pth/state_dict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/files/io/pth/failure.h"

namespace mantissa::io::pth {
namespace {

using Kind = Value::Kind;

constexpr int kDeepest = 32;
constexpr std::size_t kMostVisits = 1 << 22, kMostTensors = 1 << 20, kMostNameBytes = 64 << 20;

bool is_outer_key(std::string_view key) {
  constexpr std::array kKeys = {"model", "state_dict", "model_state_dict", "module", "weights", "params"};
  return std::ranges::find(kKeys, key) != kKeys.end();
}

/// True for entries of a training checkpoint beside the model.
bool is_training_state(std::string_view key) {
  constexpr std::array kBegins = {"optim", "ema", "lr_", "scheduler", "scaler", "rng", "callbacks", "loops"};
  return std::ranges::any_of(kBegins, [&](const char* begin) { return key.starts_with(begin); });
}

bool is_utf8(const std::string& text) {
  try {
    return !nlohmann::json(text).dump().empty();
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

class Finder {
 public:
  Finder(const Pickle& pickle, const std::string& where) : pickle_(pickle), where_(where) {}

  StateDict run() {
    add(*model(), "", 0);
    if (found_.tensors.empty())
      fail_file(where_, "contains no tensors", "save a state dict: torch.save(model.state_dict(), FILE)");
    drop_module();
    check_names();
    if (!skipped_.empty() || more_skipped_ > 0) {
      if (more_skipped_ > 0) skipped_.push_back(fmt::format("{} more", more_skipped_));
      found_.notes.push_back(
          fmt::format("{}: skipped, since they are not tensors: {}", where_, fmt::join(skipped_, ", ")));
    }
    return std::move(found_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { fail_file(where_, what); }

  void count_visit() {
    if (++visits_ > kMostVisits) fail("its dicts share each other too often to be read as a state dict");
  }

  bool has_tensors(const Value& value, int depth) {
    count_visit();
    if (value.kind == Kind::tensor) return true;
    if (depth == kDeepest || (!value.is_dict() && value.kind != Kind::list && value.kind != Kind::tuple))
      return false;
    return std::ranges::any_of(value.items, [&](const Value* item) { return has_tensors(*item, depth + 1); });
  }

  /// Returns the dict with the weights: the root, or what it holds under a common outer key.
  const Value* model() {
    const Value* dict = pickle_.root;
    for (int depth = 0; depth < kDeepest && dict->is_dict(); ++depth) {
      const Value* inner = nullptr;
      std::string_view key;
      std::vector<std::string> left_out;
      bool others = false;
      for (std::size_t i = 0; i + 1 < dict->items.size(); i += 2) {
        const Value &name = *dict->items[i], &value = *dict->items[i + 1];
        if (!has_tensors(value, 0)) continue;
        const std::string_view text = name.kind == Kind::text ? name.text : std::string_view();
        if (inner == nullptr && is_outer_key(text) && value.is_dict()) {
          inner = &value;
          key = text;
        } else if (is_training_state(text)) {
          left_out.push_back(name_in_quotes(text));
        } else {
          others = true;
        }
      }
      if (inner == nullptr || others) break;
      found_.notes.push_back(fmt::format(
          "{}: only the entry {} is read{}", where_, name_in_quotes(key),
          left_out.empty() ? std::string() : fmt::format("; left out: {}", fmt::join(left_out, ", "))));
      dict = inner;
    }
    return dict;
  }

  void add(const Value& value, const std::string& name, int depth) {
    count_visit();
    if (depth > kDeepest)
      fail(fmt::format("its dicts nest more than {} deep at {}", kDeepest, name_in_quotes(name)));
    if (value.kind == Kind::tensor) return add_tensor(value, name.empty() ? "tensor" : name);
    const std::string before = name.empty() ? name : name + '.';
    if (value.is_dict()) {
      for (std::size_t i = 0; i + 1 < value.items.size(); i += 2)
        add(*value.items[i + 1], before + key_text(*value.items[i], name), depth + 1);
    } else if ((value.kind == Kind::list || value.kind == Kind::tuple) && has_tensors(value, depth)) {
      for (std::size_t i = 0; i < value.items.size(); ++i)
        add(*value.items[i], before + fmt::to_string(i), depth + 1);
    } else if (value.kind != Kind::none) {
      skip(name);
    }
  }

  void add_tensor(const Value& value, const std::string& name) {
    name_bytes_ += name.size();
    if (found_.tensors.size() == kMostTensors || name_bytes_ > kMostNameBytes)
      fail(fmt::format("has more than {} tensors, or longer names than {} bytes", kMostTensors,
                       kMostNameBytes));
    found_.tensors.push_back({name, &pickle_.tensors[static_cast<std::size_t>(value.integer)]});
  }

  std::string key_text(const Value& key, const std::string& name) const {
    if (key.kind == Kind::text) return std::string(key.text);
    if (key.kind == Kind::integer) return fmt::to_string(key.integer);
    fail(fmt::format("its dict {} has a key that is neither a string nor an integer", name_in_quotes(name)));
  }

  void skip(const std::string& name) {
    constexpr std::size_t kNamed = 4;
    if (skipped_.size() < kNamed) {
      skipped_.push_back(name_in_quotes(name));
    } else {
      ++more_skipped_;
    }
  }

  void drop_module() {
    constexpr std::string_view kModule = "module.";
    const auto begins = [&](const NamedTensor& t) { return t.name.starts_with(kModule); };
    if (!std::ranges::all_of(found_.tensors, begins)) return;
    for (NamedTensor& t : found_.tensors) t.name.erase(0, kModule.size());
    found_.notes.push_back(fmt::format("{}: \"module.\" is dropped from every name", where_));
  }

  void check_names() const {
    std::unordered_set<std::string_view> names;
    for (const NamedTensor& t : found_.tensors) {
      if (!is_utf8(t.name)) fail(fmt::format("the name {} of a tensor is not UTF-8", name_in_quotes(t.name)));
      if (!names.insert(t.name).second) fail(fmt::format("has two tensors named {}", name_in_quotes(t.name)));
    }
  }

  const Pickle& pickle_;
  const std::string& where_;
  StateDict found_;
  std::vector<std::string> skipped_;
  std::size_t visits_ = 0, name_bytes_ = 0, more_skipped_ = 0;
};

}  // namespace

StateDict state_dict_of(const Pickle& pickle, const std::string& where) {
  return Finder(pickle, where).run();
}

}  // namespace mantissa::io::pth
