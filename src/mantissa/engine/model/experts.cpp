#include "mantissa/engine/model/experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace mantissa::model {
namespace {

constexpr std::string_view kPart = ".experts.";
constexpr std::int64_t kMostExperts = 4096;
constexpr std::string_view kCountKeys[] = {"num_experts", "num_local_experts"};  // transformers 5 reads both

std::string_view other_key(std::string_view count_key) {
  return kCountKeys[count_key == kCountKeys[0] ? 1 : 0];
}

std::int64_t read_count(const FieldReader& fields, std::string_view key, std::int64_t otherwise) {
  const std::string_view other = other_key(key);
  if (!fields.has(other)) return fields.size(key, otherwise, kMostExperts);
  const std::int64_t count = fields.size(other, otherwise, kMostExperts);
  if (fields.size(key, count, kMostExperts) != count)
    fields.fail(other, fmt::format("is {}, but {} is {}; remove one of them", count, key, fields.size(key)));
  return count;
}

}  // namespace

Experts read_experts(const FieldReader& fields, std::string_view count_key, std::int64_t count,
                     std::int64_t chosen, std::int64_t width, std::size_t layers) {
  Experts e;
  e.count_key = count_key;
  e.count = read_count(fields, count_key, count);
  e.chosen = fields.size("num_experts_per_tok", chosen);
  if (e.chosen > e.count) {
    fields.fail("num_experts_per_tok",
                fmt::format("is {}, but a layer has {} experts ({}); set at most as many", e.chosen, e.count,
                            count_key));
  }
  e.width = width;
  e.layers.assign(layers, true);
  fields.refuse_flag(
      "output_router_logits",
      "the loss of balance that it adds is not computed here; set it to false to train without it");
  return e;
}

void write_experts(const Experts& e, nlohmann::json& config) {
  config.erase(std::string(other_key(e.count_key)));
  config[std::string(e.count_key)] = e.count;
}

std::vector<Field> expert_fields(std::string_view count_key) {
  using Kind = Field::Kind;
  return {{count_key, Kind::whole, "experts of a layer"},
          {other_key(count_key), Kind::whole, "the same"},
          {"num_experts_per_tok", Kind::whole, "experts that a token passes through"},
          {"output_router_logits", Kind::flag, "adds a loss of balance; only false is supported"}};
}

bool is_of_experts(std::string_view parameter) {
  const std::size_t at = parameter.find(kPart);
  return at != std::string_view::npos && !parse_expert_tensor(parameter);
}

std::string expert_tensor(std::string_view parameter, std::int64_t expert) {
  const std::size_t end = parameter.find(kPart) + kPart.size();
  return fmt::format("{}{}.{}", parameter.substr(0, end), expert, parameter.substr(end));
}

std::optional<ExpertTensor> parse_expert_tensor(std::string_view tensor) {
  const std::size_t at = tensor.find(kPart);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = tensor.substr(at + kPart.size());
  const std::size_t digits = rest.find('.');
  if (digits == std::string_view::npos || digits == 0) return std::nullopt;
  ExpertTensor e;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + digits, e.expert);
  if (error != std::errc() || end != rest.data() + digits || e.expert < 0 || e.expert >= kMostExperts)
    return std::nullopt;
  e.parameter = fmt::format("{}{}", tensor.substr(0, at + kPart.size()), rest.substr(digits + 1));
  return e;
}

}  // namespace mantissa::model
