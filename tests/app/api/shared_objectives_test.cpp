// Rows that ranks share, in every kind of training: the bits of one process, and the figures of whole rows.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "app/api/on_ranks.h"
#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::api::shared_objectives_test {
namespace {

using mantissa::testing::into;
using mantissa::testing::on_ranks;
using mantissa::testing::read_all;
using mantissa::testing::steps_of;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::timeless;

/// A kind of training: lines of a config.
struct Kind {
  const char* name;
  const char* data;  // of [data]
  const char* more;  // other sections
  int zero = 3;      // the largest stage of ZeRO
};

const Kind kKinds[] = {
    {"packed", "source = \"kk\"\npacking = true\n", ""},
    {"sft", "source = \"rows.jsonl\"\ntemplate = \"none\"\ntokenizer = \"byte\"\n",
     "[train]\nobjective = \"sft\"\n"},
    {"packed_sft", "source = \"rows.jsonl\"\ntemplate = \"none\"\ntokenizer = \"byte\"\npacking = true\n",
     "[train]\nobjective = \"sft\"\n"},
    {"dpo", "source = \"pairs.jsonl\"\ntemplate = \"none\"\ntokenizer = \"byte\"\n",
     "[train]\nobjective = \"dpo\"\n"},
    {"simpo", "source = \"pairs.jsonl\"\ntemplate = \"none\"\ntokenizer = \"byte\"\n",
     "[train]\nobjective = \"dpo\"\n[dpo]\nloss = \"simpo\"\n"},
    {"kto", "source = \"pairs.jsonl\"\ntemplate = \"none\"\ntokenizer = \"byte\"\n",
     "[train]\nobjective = \"kto\"\n", 2},
    {"apo_zero", "source = \"pairs.jsonl\"\ntemplate = \"none\"\ntokenizer = \"byte\"\n",
     "[train]\nobjective = \"kto\"\n[kto]\nloss = \"apo-zero\"\n"},
    {"reward", "source = \"pairs.jsonl\"\ntemplate = \"none\"\ntokenizer = \"byte\"\n",
     "[train]\nobjective = \"reward\"\n"},
};

class SharedObjectives : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    std::ofstream rows(folder / "rows.jsonl"), pairs(folder / "pairs.jsonl");
    const auto text = [](int length, char first) {
      return std::string(static_cast<std::size_t>(length), first);
    };
    for (int r = 0; r < 40; ++r) {
      const auto letter = static_cast<char>('a' + r % 26);
      rows << R"({"prompt": ")" << text(1 + r * 7 % 23, letter) << R"(", "completion": ")"
           << text(1 + r * 5 % 17, 'A') << "\"}\n";
      pairs << R"({"prompt": ")" << text(1 + r * 7 % 11, letter) << R"(", "chosen": ")"
            << text(1 + r * 5 % 9, 'A') << R"(", "rejected": ")" << text(1 + r * 3 % 8, 'b') << "\"}\n";
    }
  }
  std::string config_of(const std::string& policy, int parts, int zero = 0, int micro = 1) {
    const Kind& kind = GetParam();
    return "[run]\nsteps = 4\n[model]\nhidden_size = 16\nintermediate_size = 24\nnum_hidden_layers = "
           "2\nnum_attention_heads = 2\nvocab_size = 256\n[data]\nsequence_length = 48\nvalidation = 0.1\n" +
           std::string(kind.data) +
           "[batch]\nglobal_batch_size = 8\nshards = 4\nmicro_batch_size = " + std::to_string(micro) +
           "\n[optimizer]\nlr = 1e-2\n[schedule]\nwarmup_steps = 1\n[checkpoint]\ninterval = "
           "3\n[precision]\npolicy = \"" +
           policy + "\"\n[distributed]\nzero = " + std::to_string(zero) +
           "\npersistence_threshold = 40\nsequence_shards = " + std::to_string(parts) + "\n" + kind.more;
  }
  Summary run(int ranks, const std::string& config, const std::string& out) {
    std::ofstream(folder / (out + ".toml")) << config;
    const auto body = [&](const Ranks& own) {
      TrainOptions options = into(folder / out);
      options.hardware.threads = 1;
      options.ranks = own;
      return train(Config::load(folder / (out + ".toml")), options);
    };
    return ranks == 1 ? body({}) : on_ranks(ranks, body).front();
  }

  TemporaryFolder folder;
};

/// The shortest rows have fewer tokens than blocks.
TEST_P(SharedObjectives, HaveTheBitsOfOneProcess) {
  constexpr int kParts = 3;
  const Summary alone = run(1, config_of("bf16-mixed", kParts), "one");
  ASSERT_FALSE(alone.weights_xxh64.empty());
  for (const auto& [groups, zero, micro] : {std::tuple(1, GetParam().zero, 2), {2, 0, 1}, {2, 2, 2}}) {
    const std::string name = std::to_string(groups) + "-" + std::to_string(zero);
    EXPECT_EQ(run(kParts * groups, config_of("bf16-mixed", kParts, zero, micro), name).weights_xxh64,
              alone.weights_xxh64)
        << name;
    for (const char* file : {"metrics.jsonl", "state/step-00000003/state.safetensors"})
      EXPECT_TRUE(timeless(read_all(folder / name / file)) == timeless(read_all(folder / "one" / file)))
          << name << ": " << file;
  }
}

TEST_P(SharedObjectives, HaveTheFiguresOfWholeRows) {
  run(1, config_of("64-true", 1), "whole");
  run(1, config_of("64-true", 3, 0, 2), "shared");
  const auto whole = steps_of(folder / "whole"), shared = steps_of(folder / "shared");
  ASSERT_EQ(whole.size(), 4U);
  ASSERT_EQ(shared.size(), 4U);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const auto& [key, value] : whole[i].items()) {
      if (!value.is_number_float() || key == "tokens_per_second" || key == "seconds" || key == "peak_share")
        continue;
      EXPECT_NEAR(shared[i][key].get<double>(), value.get<double>(), 1e-9) << key << " step " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SharedObjectives, ::testing::ValuesIn(kKinds),
                         [](const auto& i) { return i.param.name; });

}  // namespace
}  // namespace mantissa::api::shared_objectives_test
