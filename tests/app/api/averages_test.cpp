// Weights for evaluation: averages that validation, eval and the saved model read in place of the weights,
// and that change no bit of the training.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "app/api/on_ranks.h"
#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::api::averages_test {
namespace {

using testing::has;
using testing::into;
using testing::read_all;
using testing::TemporaryFolder;
using testing::timeless;

constexpr const char* kEma = "ema_decay = 0.75";
constexpr const char* kFree = "name = \"schedule-free-adamw\"";

/// A run whose averages `optimizer` makes, a line of [optimizer].
std::string config_of(const std::string& policy, const std::string& optimizer, int steps = 8, int micro = 2) {
  std::string text = testing::tiny_config(steps, policy, micro);
  text = std::regex_replace(text, std::regex("lr = 1e-2\n"), "lr = 1e-2\n" + optimizer + "\n");
  return std::regex_replace(text, std::regex("warmup_steps = 2\n"),
                            "warmup_steps = 2\nname = \"constant\"\n");
}

/// The tensors of a file, in f64.
std::map<std::string, std::vector<double>> tensors(const std::filesystem::path& path) {
  std::map<std::string, std::vector<double>> all;
  const io::SafetensorsReader file(path);
  for (const io::TensorInfo& t : file.tensors()) {
    if (t.dtype != io::Dtype::f32 && t.dtype != io::Dtype::bf16) continue;
    std::vector<std::byte> bytes(t.end - t.begin);
    file.read(t, bytes);
    std::vector<double>& values = all[t.name];
    for (std::size_t i = 0; i < bytes.size(); i += t.dtype == io::Dtype::f32 ? 4 : 2) {
      float value = 0;
      std::memcpy(reinterpret_cast<std::byte*>(&value) + (t.dtype == io::Dtype::f32 ? 0 : 2),
                  bytes.data() + i, t.dtype == io::Dtype::f32 ? 4 : 2);
      values.push_back(static_cast<double>(value));
    }
  }
  return all;
}

std::filesystem::path state_of(const std::filesystem::path& run, int step) {
  return run / ("state/step-0000000" + std::to_string(step)) / "state.safetensors";
}

TEST(Averages, AreWhatValidationEvalAndTheModelRead) {
  for (const char* optimizer : {kEma, kFree}) {
    const TemporaryFolder folder;
    const Config config = Config::parse(config_of("32-true", optimizer));
    const Summary run = train(config, into(folder / "run"));
    const auto state = tensors(state_of(folder / "run", 8)),
               model = tensors(folder / "run/model/model.safetensors");
    ASSERT_FALSE(model.empty());
    for (const auto& [name, values] : model) {
      EXPECT_EQ(values, state.at("average." + name)) << name;
      EXPECT_NE(values, state.at("master." + name)) << name;
    }
    // The model is that of the last validation, and so is the state: eval computes the same sum of both.
    const auto loss = [&] {
      const std::string out = "run.out=" + (folder / "run").string();
      return evaluate(Config::parse(config_of("32-true", optimizer), {out}), 0).loss;
    };
    EXPECT_EQ(loss(), *run.validation_loss);
    std::filesystem::remove_all(folder / "run/model");
    EXPECT_EQ(loss(), *run.validation_loss) << "a run with a state alone";
    // The weights in training have another loss.
    TrainOptions without = into(folder / "without");
    const Summary plain = train(Config::parse(config_of("32-true", "ema_decay = 0")), without);
    EXPECT_NE(*plain.validation_loss, *run.validation_loss);
    if (std::string_view(optimizer) != kEma) continue;
    const auto other = tensors(state_of(folder / "without", 8));
    for (const auto& [name, values] : other) EXPECT_EQ(values, state.at(name)) << name;
  }
}

TEST(Averages, ConvertOfAStateWritesThem) {
  const TemporaryFolder folder;
  train(Config::parse(config_of("bf16-mixed", kEma, 3)), into(folder / "run"));
  ConvertOptions options;
  options.in = folder / "run/state/step-00000003";
  options.out = folder / "model";
  convert(options);
  const auto state = tensors(state_of(folder / "run", 3)),
             model = tensors(folder / "model/model.safetensors");
  ASSERT_FALSE(model.empty());
  for (const auto& [name, values] : model) EXPECT_EQ(values, state.at("average." + name)) << name;
}

class AveragesUnder : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Policies, AveragesUnder,
                         ::testing::Values("64-true", "32-true", "bf16-mixed", "16-mixed",
                                           "bf16-true optimizer=bf16 rounding=stochastic",
                                           "bf16-true optimizer=bf16 kahan=true",
                                           "fp8-hybrid amax_history=2; *mlp*: steps=2:5 compute=bf16",
                                           "bf16-mixed compute=nvfp4 scaling=delayed",
                                           "bf16-mixed optimizer=dynamic8-256",
                                           "bf16-mixed weights=nvfp4; *.down_proj: weights=none"),
                         [](const auto& i) { return "policy" + std::to_string(i.index); });

/// The masters, moments and magnitudes of a run do not depend on the number of its validations.
TEST_P(AveragesUnder, ChangeNoBitOfTheTraining) {
  const TemporaryFolder folder;
  for (const char* optimizer : {kEma, kFree}) {
    const std::string text = config_of(GetParam(), optimizer);
    const auto with = [&](const char* interval) {
      return Config::parse(std::regex_replace(text, std::regex("interval = 3"), interval));
    };
    train(with("interval = 1"), into(folder / "often"));
    train(with("interval = 0"), into(folder / "seldom"));
    EXPECT_TRUE(read_all(state_of(folder / "often", 8)) == read_all(state_of(folder / "seldom", 8)))
        << optimizer;
    for (const char* run : {"often", "seldom"}) std::filesystem::remove_all(folder / run);
  }
}

TEST_P(AveragesUnder, ContinueWithTheSameBytes) {
  for (const char* optimizer : {kEma, kFree, "name = \"ademamix\"\nema_decay = 0.5", "name = \"adan\""})
    testing::expect_same_bytes_from(Config::parse(config_of(GetParam(), optimizer)), {3, 6});
}

TEST_P(AveragesUnder, DoNotDependOnThreadsMicroBatchesOrRanks) {
  const TemporaryFolder folder;
  for (const char* optimizer : {kEma, kFree, "name = \"ademamix\"", "name = \"adan\"\nema_decay = 0.5"}) {
    const auto run = [&](int micro, int threads, int size, int zero, const std::string& out) {
      std::string text = config_of(GetParam(), optimizer, 4, micro);
      text = std::regex_replace(text, std::regex("global_batch_size = 4\n"),
                                "global_batch_size = 4\nshards = 2\n");
      if (size > 1)
        text += "[distributed]\nzero = " + std::to_string(zero) + "\npersistence_threshold = 40\n";
      testing::on_ranks(size, [&](const Ranks& ranks) {
        TrainOptions options = into(folder / out);
        options.overwrite = true;
        options.hardware.threads = threads;
        options.ranks = ranks;
        return train(Config::parse(text), options);
      });
      return read_all(folder / out / "model/model.safetensors") +
             timeless(read_all(folder / out / "metrics.jsonl"));
    };
    const std::string alone = run(2, 1, 1, 0, "alone");
    EXPECT_TRUE(run(2, 2, 1, 0, "threads") == alone) << optimizer;
    if (!has(GetParam(), "bf16-true")) {
      EXPECT_TRUE(run(1, 1, 1, 0, "micro") == alone) << optimizer;
    }
    for (const int zero : {0, 1, 2, 3}) {
      const std::string ranks = run(2, 1, 2, zero, "ranks");
      EXPECT_EQ(ranks.size(), alone.size());
      EXPECT_TRUE(ranks == alone) << optimizer << " zero " << zero << ", from byte "
                                  << std::ranges::mismatch(ranks, alone).in1 - ranks.begin() << " of "
                                  << ranks.size();
    }
  }
}

TEST(Averages, BeginAtTheWeightsOfAResumedRunAndEndWithTheirKey) {
  const TemporaryFolder folder;
  const auto with = [](const char* optimizer) { return Config::parse(config_of("32-true", optimizer)); };
  std::vector<std::string> notes;
  Events events;
  events.on_note = [&](const std::string& note) { notes.push_back(note); };
  train(with("ema_decay = 0"), into(folder / "run"));
  TrainOptions again = into(folder / "run");
  again.resume = 3;
  train(with(kEma), again, events);
  EXPECT_TRUE(std::ranges::any_of(
      notes, [](const std::string& n) { return has(n, "step 3: optimizer.ema_decay 0.0 -> 0.75"); }));
  // After step 3 the averages were the masters of its state.
  const auto before = tensors(state_of(folder / "run", 3)), after = tensors(state_of(folder / "run", 6));
  std::size_t averages = 0;
  for (const auto& [name, values] : after) {
    if (!name.starts_with("average.")) continue;
    const std::string weight = name.substr(8);
    const std::vector<double>&begun = before.at("master." + weight), &now = after.at("master." + weight);
    ++averages;
    for (std::size_t i = 0; i < values.size(); ++i) {
      // Three steps of about lr each leave 1 − 0.75³ of the way at most.
      ASSERT_LE(std::abs(values[i] - begun[i]), 3 * 0.03) << name;
      ASSERT_TRUE(std::isfinite(now[i]));
    }
  }
  EXPECT_GT(averages, 0U);
  again.resume = 6;
  train(with("ema_decay = 0"), again);
  for (const auto& [name, values] : tensors(state_of(folder / "run", 8)))
    EXPECT_FALSE(name.starts_with("average.")) << name;
}

TEST(Averages, OfAnAdapterAreSavedAsTheAdapter) {
  const TemporaryFolder folder;
  train(Config::parse(testing::tiny_config(2, "32-true")), into(folder / "base"));
  for (const char* optimizer : {kEma, kFree}) {
    std::string text = config_of("bf16-mixed", optimizer, 4) + "[adapter]\nkind = \"lora\"\nrank = 4\n";
    const std::size_t begin = text.find("hidden_size"), end = text.find("[data]");
    text.replace(begin, end - begin, "path = \"" + (folder / "base/model").string() + "\"\n");
    const std::filesystem::path out = folder / optimizer;
    train(Config::parse(text), into(out));
    const auto state = tensors(state_of(out, 4)),
               adapter = tensors(out / "adapter/adapter_model.safetensors");
    ASSERT_FALSE(adapter.empty());
    std::size_t found = 0;
    for (const auto& [name, values] : adapter) {
      for (const auto& [of_state, average] : state)
        found += of_state.starts_with("average.") && average == values;
    }
    EXPECT_EQ(found, adapter.size()) << optimizer;
  }
}

/// The reference of the pairs keeps the weights of the start.
TEST(Averages, OfPreferencesLeaveTheTrainingAsItIs) {
  const TemporaryFolder folder;
  {
    std::ofstream out(folder / "pairs.jsonl");
    for (int r = 0; r < 24; ++r) {
      const std::string word(1 + static_cast<std::size_t>(r % 7), static_cast<char>('a' + r));
      out << nlohmann::json{{"prompt", word + "?"}, {"chosen", word + "."}, {"rejected", "no " + word}}.dump()
          << "\n";
    }
  }
  const auto run = [&](const char* optimizer, const std::string& out) {
    const std::string text = std::regex_replace(
        config_of("bf16-mixed", optimizer, 6), std::regex("source = \"kk\""),
        "source = \"" + (folder / "pairs.jsonl").string() + "\"\ntemplate = \"none\"\ntokenizer = \"byte\"");
    train(Config::parse(text + "[train]\nobjective = \"dpo\"\n"), into(folder / out));
    return tensors(state_of(folder / out, 6));
  };
  const auto with = run(kEma, "with"), without = run("ema_decay = 0", "without");
  for (const auto& [name, values] : without) EXPECT_EQ(values, with.at(name)) << name;
  for (const auto& [name, values] : tensors(folder / "with/model/model.safetensors"))
    EXPECT_EQ(values, with.at("average." + name)) << name;
}

TEST(Averages, OfAStepThatIsSkippedStay) {
  const TemporaryFolder folder;
  const std::string scaled = "[precision.loss_scale]\ninitial_scale_power = 40\n";
  const Summary run = train(Config::parse(config_of("16-mixed", kEma, 3) + scaled), into(folder / "run"));
  ASSERT_EQ(run.skipped, 3);
  const auto state = tensors(state_of(folder / "run", 3));
  for (const auto& [name, values] : state) {
    if (name.starts_with("average.")) {
      EXPECT_EQ(values, state.at("master." + name.substr(8))) << name;
    }
  }
}

TEST(ScheduleFree, NeedsAConstantRate) {
  for (const char* schedule : {"name = \"cosine\"", "name = \"wsd\""}) {
    const std::string text =
        std::regex_replace(config_of("32-true", kFree), std::regex("name = \"constant\""), schedule);
    try {
      Config::parse(text);
      FAIL();
    } catch (const ConfigError& e) {
      EXPECT_TRUE(has(e.what(), "--set schedule.name=constant")) << e.what();
    }
  }
  EXPECT_THROW(Config::parse(config_of("32-true", (std::string(kFree) + "\nema_decay = 0.9").c_str())),
               ConfigError);
}

}  // namespace
}  // namespace mantissa::api::averages_test
