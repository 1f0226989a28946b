#include "mantissa/engine/model/experts.h"

#include <fmt/format.h>

namespace mantissa::model {
namespace {

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

Experts read_experts(const FieldReader& fields, ModelConfig& config, const ExpertDefaults& defaults,
                     std::int64_t width) {
  const std::string_view count_key = defaults.count_key;
  Experts e;
  e.count_key = count_key;
  e.count = read_count(fields, count_key, defaults.count);
  e.chosen = fields.size("num_experts_per_tok", defaults.chosen);
  if (e.chosen > e.count) {
    fields.fail("num_experts_per_tok",
                fmt::format("is {}, but a layer has {} experts ({}); set at most as many", e.chosen, e.count,
                            count_key));
  }
  e.width = width;
  constexpr double kMatrices = 3;  // of an expert
  fields.check_weights(count_key, kMatrices * static_cast<double>(e.count) * static_cast<double>(width) *
                                      static_cast<double>(config.hidden_size) *
                                      static_cast<double>(config.num_hidden_layers));
  e.layers.assign(static_cast<std::size_t>(config.num_hidden_layers), true);
  const double coefficient = fields.number("router_aux_loss_coef", defaults.aux_loss_coef, true);
  config.router_aux_loss_coef = fields.flag("output_router_logits", false) ? coefficient : 0;
  if (config.router_aux_loss_coef != 0.0) {
    config.notes.push_back(
        fmt::format("output_router_logits: pretrain and sft add the load-balancing loss of weight {}; "
                    "train.router_aux_loss_coef = 0 trains without it",
                    coefficient));
  }
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
          {"output_router_logits", Kind::flag, "training adds the load-balancing loss"},
          {"router_aux_loss_coef", Kind::number, "its weight"}};
}

}  // namespace mantissa::model
