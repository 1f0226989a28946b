// The row of the padding id: the look-up does not train it, and all else does as for any other id.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>

#include "engine/runtime/program.h"

namespace mantissa::runtime::padding_test {
namespace {

using mantissa::testing::Bytes;
using mantissa::testing::Compiled;
using mantissa::testing::Data;
using mantissa::testing::Segments;
using mantissa::testing::tiny_llama;

constexpr std::int64_t kVocabulary = 29, kWidth = 16;
constexpr std::int32_t kPadding = 3;

class Padding : public ::testing::TestWithParam<const char*> {
 protected:
  Padding() : data(rows.tokens, kVocabulary, 11) { std::fill_n(data.ids.begin() + 4, 5, kPadding); }

  std::unique_ptr<Compiled> trained(bool tied, const nlohmann::json& more,
                                    bool one_micro_batch = false) const {
    plan::CompileOptions options = mantissa::testing::options_for(rows);
    options.one_micro_batch = one_micro_batch;
    auto c = std::make_unique<Compiled>(
        model::build_log_prob(tiny_llama(tied, kVocabulary, more), rows.tokens, rows.tokens, true),
        precision::Policy::parse(GetParam()), options);
    if (!tied) copy_embedding_to_head(*c);
    data.feed(*c, 0, data.ids.size());
    mantissa::testing::train_step(*c, rows.extent());
    return c;
  }

  static std::size_t slot(const Compiled& c, const std::string& name) {
    const auto it = std::ranges::find(c.program.slots, name, &plan::Slot::name);
    return static_cast<std::size_t>(it - c.program.slots.begin());
  }
  /// Makes an untied model compute what the tied one does.
  static void copy_embedding_to_head(Compiled& c) {
    const Matrix from = c.weights.master(slot(c, "model.embed_tokens.weight"));
    const Matrix to = c.weights.master(slot(c, "lm_head.weight"));
    std::memcpy(to.data, from.data, static_cast<std::size_t>(kVocabulary * kWidth) * bytes_of(from.type));
    c.refresh_copies();
  }
  /// Row `id` of the gradient of a parameter.
  static std::vector<double> gradient_row(const Compiled& c, const std::string& name, std::int64_t id) {
    return c.values(c.program.slots[slot(c, name)].gradient, kWidth, static_cast<std::size_t>(id * kWidth));
  }

  const Segments rows{{9, 4, 1}, 2};
  Data data;
};

INSTANTIATE_TEST_SUITE_P(Under, Padding,
                         ::testing::Values("64-true", "32-true", "bf16-mixed", "bf16-mixed grads=bf16"),
                         [](const auto& i) {
                           std::string name = i.param;
                           std::ranges::replace_if(
                               name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; },
                               '_');
                           return name;
                         });

const nlohmann::json kSet = {{"pad_token_id", kPadding}};

TEST_P(Padding, TheLookUpDoesNotTrainItsRow) {
  const auto with = trained(false, kSet), without = trained(false, nlohmann::json::object());
  for (std::int64_t id = 0; id < kVocabulary; ++id) {
    const std::vector<double> got = gradient_row(*with, "model.embed_tokens.weight", id);
    const std::vector<double> all = gradient_row(*without, "model.embed_tokens.weight", id);
    if (id == kPadding) {
      EXPECT_EQ(got, std::vector<double>(kWidth, 0.0));
      EXPECT_NE(all, got);
    } else {
      EXPECT_EQ(got, all) << id;
    }
  }
}

TEST_P(Padding, NoOtherGradientDependsOnIt) {
  const auto with = trained(false, kSet), without = trained(false, nlohmann::json::object());
  const std::vector<Bytes> got = with->gradients(), all = without->gradients();
  for (std::size_t s = 0; s < got.size(); ++s) {
    if (s != slot(*with, "model.embed_tokens.weight")) {
      EXPECT_EQ(got[s], all[s]) << with->program.slots[s].name;
    }
  }
}

TEST_P(Padding, ATiedHeadTrainsItsRow) {
  const auto head = trained(false, nlohmann::json::object());
  const std::vector<double> want = gradient_row(*head, "lm_head.weight", kPadding);
  EXPECT_NE(want, std::vector<double>(kWidth, 0.0));
  for (const bool one_micro_batch : {false, true}) {
    const auto tied = trained(true, kSet, one_micro_batch);
    EXPECT_EQ(gradient_row(*tied, "model.embed_tokens.weight", kPadding), want) << one_micro_batch;
  }
}

}  // namespace
}  // namespace mantissa::runtime::padding_test
