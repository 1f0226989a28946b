// The load-balancing loss of models with experts compared with that of transformers
// (tools/golden_balance.py wrote the files).
#include <gtest/gtest.h>

#include "engine/model/golden.h"
#include "engine/model/tiny_families.h"

namespace mantissa::model::balance_golden_test {
namespace {

using mantissa::testing::Compiled;
using mantissa::testing::GoldenTokens;
using mantissa::testing::kGolden;
using mantissa::testing::kSamples;
using mantissa::testing::load_masters;
using mantissa::testing::options_for;
using mantissa::testing::read_json;
using mantissa::testing::read_tensor;
using mantissa::testing::Segments;
using mantissa::testing::train_step;

class BalanceGolden : public ::testing::TestWithParam<const char*> {
 protected:
  std::filesystem::path directory() const { return kGolden / "families" / GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Models, BalanceGolden,
                         ::testing::Values("qwen3-moe", "qwen3-moe-tied", "mixtral", "mixtral-tied", "olmoe",
                                           "olmoe-tied"),
                         [](const auto& i) {
                           std::string name = i.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(BalanceGolden, IsThatOfTransformersOverEachRow) {
  constexpr double kWeight = 4;  // of the gradient alone
  const GoldenTokens tokens(kGolden / "families/tokens.safetensors");
  const ModelConfig config = parse_model_config(read_json(directory() / "config.json"), "config.json");
  const Segments rows(std::vector<std::int64_t>(static_cast<std::size_t>(tokens.rows), tokens.length));
  Compiled c(build_log_prob(config, rows.tokens, tokens.length, true, {}, {.balance = kWeight}),
             precision::Policy::parse("64-true"), options_for(rows));
  load_masters(c, directory());
  const std::size_t count = tokens.ids.size();
  for (std::size_t t = 0; t < count; ++t) {
    c.integers("ids")[t] = static_cast<std::int32_t>(tokens.ids[t]);
    c.integers("targets")[t] = -1;
    c.set(c.program.required("dlog_prob"), t, 0);
    c.set(c.program.required("dbalance"), t, 1 / static_cast<double>(count));
  }
  train_step(c, rows.extent());

  const io::WeightFiles golden(directory() / "balance_f64.safetensors");
  const std::vector<double> balance = c.values("balance", count), loss = read_tensor(golden, "loss");
  const auto length = static_cast<std::size_t>(tokens.length);
  for (std::size_t r = 0; r < loss.size(); ++r) {
    double mean = 0;
    for (std::size_t t = 0; t < length; ++t) mean += balance[r * length + t] / static_cast<double>(length);
    EXPECT_NEAR(mean, loss[r], 1e-12) << "row " << r;
  }
  int compared = 0;
  for (std::size_t s = 0; s < c.program.slots.size(); ++s) {
    const std::string name = "grad." + c.program.slots[s].name;
    const std::vector<double> ours = c.values(c.program.slots[s].gradient, c.count(s));
    const std::vector<double> want =
        golden.find(name) == nullptr ? std::vector<double>() : read_tensor(golden, name);
    for (std::size_t i = 0; i < ours.size() && want.empty(); ++i) ASSERT_EQ(ours[i], 0) << name;
    const std::size_t n = std::min(kSamples, ours.size());
    for (std::size_t i = 0; i < n && !want.empty(); ++i)
      ASSERT_NEAR(ours[i * ours.size() / n] / kWeight, want[i], 1e-12) << name << ' ' << i;
    compared += want.empty() ? 0 : 1;
  }
  EXPECT_EQ(static_cast<std::size_t>(compared) + 1, golden.tensors().size());
}

TEST(BalanceConfig, HasTheDefaultsOfTransformersAndIsOnIfConfigAsks) {
  using mantissa::testing::facts_of;
  for (const auto& [type, weight] : {std::pair("qwen3_moe", 0.001), {"mixtral", 0.001}, {"olmoe", 0.01}}) {
    nlohmann::json fields = mantissa::testing::tiny_models(facts_of(type)).front().config;
    const auto read = [&] { return parse_model_config(fields, type).router_aux_loss_coef; };
    EXPECT_EQ(read(), 0) << type;
    fields["router_aux_loss_coef"] = 0.3;
    EXPECT_EQ(read(), 0) << type;
    fields["output_router_logits"] = true;
    EXPECT_EQ(read(), 0.3) << type;
    fields.erase("router_aux_loss_coef");
    EXPECT_EQ(read(), weight) << type;
  }
  const auto llama = mantissa::testing::tiny_models(facts_of("llama")).front();
  EXPECT_EQ(parse_model_config(llama.config, llama.name).router_aux_loss_coef, std::nullopt);
}

}  // namespace
}  // namespace mantissa::model::balance_golden_test
