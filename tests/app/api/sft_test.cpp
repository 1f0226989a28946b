// Supervised fine-tuning: the gradients of PyTorch, packs that change no bit, and runs that continue within
// an epoch.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <stop_token>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::api {
namespace {

using testing::has;
using testing::into;
using testing::read_all;
using testing::TemporaryFolder;
using testing::timeless;

const std::string kGolden = std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/sft/";

/// Rows of different lengths under ChatML, in bytes.
void write_rows(const std::filesystem::path& path, int count) {
  std::ofstream out(path);
  for (int r = 0; r < count; ++r) {
    out << R"({"prompt": ")"
        << std::string(static_cast<std::size_t>(1 + r * 7 % 23), static_cast<char>('a' + r % 26))
        << R"(", "completion": ")"
        << std::string(static_cast<std::size_t>(1 + r * 5 % 17), static_cast<char>('A' + r % 26)) << "\"}\n";
  }
}

/// `batch` rows or packs a step, of at most 300 tokens.
std::string sft_config(int steps, int batch, int micro, bool packing, const std::string& policy = "32-true",
                       const std::string& more = "") {
  return "[run]\nsteps = " + std::to_string(steps) +
         "\n[model]\nhidden_size = 16\nintermediate_size = 24\nnum_hidden_layers = 1\nnum_attention_heads = "
         "2\n"
         "vocab_size = 256\ntie_word_embeddings = true\n[train]\nobjective = \"sft\"\n[data]\nsource = "
         "\"rows.jsonl\"\ntemplate = \"chatml\"\nsequence_length = 300\nvalidation = 0.1\nshuffle = " +
         (packing ? "true\npacking = true\n" : "true\n") + more +
         "[batch]\nglobal_batch_size = " + std::to_string(batch) +
         "\nmicro_batch_size = " + std::to_string(micro) +
         "\n[optimizer]\nlr = 1e-2\n[schedule]\nwarmup_steps = 1\n[checkpoint]\ninterval = "
         "2\n[precision]\npolicy = \"" +
         policy + "\"\n";
}

struct Ran {
  Summary summary;
  std::vector<Step> steps;
};
Ran run(const TemporaryFolder& folder, const std::string& name, const std::string& config,
        TrainOptions options = {}) {
  std::ofstream(folder / (name + ".toml")) << config;
  Ran ran;
  Events events;
  events.on_step = [&](const Step& step) { ran.steps.push_back(step); };
  options.out = folder / name;
  ran.summary = train(Config::load(folder / (name + ".toml")), options, events);
  return ran;
}

TEST(Sft, LossAndGradientsAreThoseOfPyTorchWithMaskedLabels) {
  const TemporaryFolder folder;
  // One step of gradient descent at rate 1 changes each weight by its gradient.
  const Ran ran =
      run(folder, "step",
          "[run]\nsteps = 1\n[model]\npath = \"" + kGolden +
              "model\"\n[train]\nobjective = \"sft\"\n"
              "[data]\nsource = \"" +
              kGolden + "step.jsonl\"\ntokenizer = \"" + kGolden +
              "byte_level/tokenizer.json\"\ntemplate = \"chatml\"\nsequence_length = 100\nvalidation = 0\n"
              "shuffle = false\n[batch]\nglobal_batch_size = 4\nmicro_batch_size = 2\n[optimizer]\n"
              "name = \"sgd\"\nlr = 1.0\nmax_grad_norm = 0.0\n[schedule]\nname = \"constant\"\n"
              "warmup_steps = 0\n",
          [] {
            TrainOptions o;
            o.return_weights = true;
            return o;
          }());
  const io::SafetensorsReader before(kGolden + "model/model.safetensors"),
      expected(kGolden + "step.safetensors");
  const auto f32_of = [](const auto& file, const std::string& name) {
    std::vector<float> values(static_cast<std::size_t>(file.find(name)->count()));
    file.read(*file.find(name), std::as_writable_bytes(std::span(values)));
    return values;
  };
  double loss = 0;
  expected.read(*expected.find("loss"), std::as_writable_bytes(std::span(&loss, 1)));
  constexpr double kEps = 1.0 / (1 << 24);
  // A log-probability has about as many roundings as the model is deep and wide.
  EXPECT_NEAR(ran.steps.front().loss, loss, 200 * kEps * loss);
  ASSERT_NE(ran.summary.weights, nullptr);
  std::size_t checked = 0;
  for (const Tensor& tensor : ran.summary.weights->tensors) {
    const std::vector<float> w = f32_of(before, tensor.name), g = f32_of(expected, "grad." + tensor.name);
    const auto* after = reinterpret_cast<const float*>(tensor.bytes.data());
    double largest = 0;
    for (const float x : g) largest = std::max(largest, std::abs(static_cast<double>(x)));
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double got = static_cast<double>(w[i]) - static_cast<double>(after[i]);
      // The weight rounds once, and the gradient is a sum of about 200 tokens behind some 10 products of up
      // to 368.
      const double tolerance = kEps * (std::abs(static_cast<double>(w[i])) + largest) + 2000 * kEps * largest;
      ASSERT_NEAR(got, static_cast<double>(g[i]), tolerance) << tensor.name << " " << i;
      ++checked;
    }
  }
  EXPECT_GT(checked, 30000U);
}

TEST(Sft, PackedRowsTrainToTheBitsOfSeparateRows) {
  for (const char* policy :
       {"32-true", "bf16-mixed", "bf16-mixed compute=mxfp8", "bf16-true rounding=stochastic"}) {
    const TemporaryFolder folder;
    write_rows(folder / "rows.jsonl", 40);
    // All rows of the packs of one step, then the same rows as a batch of their number.
    const Ran packed = run(folder, "packed", sft_config(1, 4, 2, true, policy));
    const Ran whole = run(folder, "whole", sft_config(1, 4, 4, true, policy));
    // Sums below f32 depend on the split into micro-batches, with packs and without.
    if (!has(policy, "true rounding")) {
      EXPECT_EQ(whole.summary.weights_xxh64, packed.summary.weights_xxh64) << policy;
    }
    bool found = false;
    for (int rows = 5; rows < 25 && !found; ++rows) {
      const Ran plain = run(folder, "plain" + std::to_string(rows), sft_config(1, rows, rows, false, policy));
      if (plain.summary.tokens != packed.summary.tokens) continue;
      found = true;
      EXPECT_EQ(plain.summary.weights_xxh64, whole.summary.weights_xxh64) << policy << " " << rows;
      EXPECT_EQ(plain.steps[0].loss, packed.steps[0].loss) << policy;
      EXPECT_EQ(plain.summary.validation_loss, whole.summary.validation_loss) << policy;
      EXPECT_EQ(*plain.steps[0].masked_share, *packed.steps[0].masked_share);
      EXPECT_GT(*plain.steps[0].padding_share, *packed.steps[0].padding_share);
    }
    EXPECT_TRUE(found) << policy;
  }
}

TEST(Sft, BitsDoNotDependOnTheMicroBatch) {
  const TemporaryFolder folder;
  write_rows(folder / "rows.jsonl", 30);
  for (const bool packing : {false, true}) {
    const std::string name = packing ? "packed" : "plain";
    const Ran one = run(folder, name + "1", sft_config(4, 4, 1, packing));
    EXPECT_EQ(run(folder, name + "4", sft_config(4, 4, 4, packing)).summary.weights_xxh64,
              one.summary.weights_xxh64);
  }
}

TEST(Sft, ARunThatStopsWithinAnEpochEndsWithTheSameBytes) {
  for (const bool packing : {false, true}) {
    const TemporaryFolder folder;
    write_rows(folder / "rows.jsonl", 30);  // 27 for training: 7 steps of 4 rows are an epoch
    const std::string config = sft_config(9, 4, 2, packing);
    run(folder, "whole", config);
    std::stop_source stop;
    std::ofstream(folder / "cut.toml") << config;
    Events events;
    events.on_step = [&](const Step& step) {
      if (step.step == 5) stop.request_stop();
    };
    const Config read = Config::load(folder / "cut.toml");
    ASSERT_TRUE(train(read, into(folder / "cut"), events, stop.get_token()).interrupted);
    TrainOptions resume = into(folder / "cut");
    resume.resume = 0;
    train(read, resume);
    EXPECT_EQ(read_all(folder / "cut" / "model" / "model.safetensors"),
              read_all(folder / "whole" / "model" / "model.safetensors"));
    EXPECT_EQ(timeless(read_all(folder / "cut" / "metrics.jsonl")),
              timeless(read_all(folder / "whole" / "metrics.jsonl")));
  }
}

TEST(Sft, IsNotResumedOnOtherRows) {
  for (const bool packing : {false, true}) {
    const TemporaryFolder folder;
    write_rows(folder / "rows.jsonl", 30);
    const std::string config = sft_config(6, 4, 2, packing);
    run(folder, "run", config);
    const auto resume = [&]() -> std::string {
      TrainOptions options = into(folder / "run");
      options.resume = 4;
      try {
        train(Config::load(folder / "run.toml"), options);
      } catch (const FileError& e) {
        return e.what();
      }
      return "";
    };
    const std::string rows = read_all(folder / "rows.jsonl");
    std::string changed = rows;
    constexpr std::string_view kBegin = "completion\": \"";
    changed[changed.find(kBegin) + kBegin.size()] = 'Z';  // one letter of the first answer
    std::ofstream(folder / "rows.jsonl") << changed;
    EXPECT_TRUE(has(resume(), "the data have changed")) << resume();
    write_rows(folder / "rows.jsonl", 20);
    EXPECT_TRUE(has(resume(), "the data have changed")) << resume();
    std::ofstream(folder / "rows.jsonl") << rows;
    EXPECT_EQ(resume(), "");
  }
}

TEST(Sft, MetricsHaveTheSharesOfMaskedTokensAndOfPadding) {
  const TemporaryFolder folder;
  std::ofstream(folder / "rows.jsonl") << R"({"prompt": "abc", "completion": "de"})"
                                       << "\n"
                                       << R"({"prompt": "abc", "completion": "defg"})"
                                       << "\n";
  const std::string config =
      std::regex_replace(sft_config(1, 2, 1, false), std::regex("validation = 0.1"), "validation = 0");
  const Ran ran = run(folder, "r", config);
  const std::string metrics = read_all(folder / "r" / "metrics.jsonl");
  const auto line = nlohmann::json::parse(metrics.substr(0, metrics.find('\n')));
  const std::string text = "<|im_start|>user\nabc<|im_end|>\n<|im_start|>assistant\nde<|im_end|>\n";
  const double inputs = 2 * static_cast<double>(text.size()) + 2 - 2, trained = 12 + 14;
  EXPECT_EQ(line["tokens"], 26);
  EXPECT_NEAR(line["masked_share"].get<double>(), 1 - trained / inputs, 1e-8);
  EXPECT_NEAR(line["padding_share"].get<double>(), 1 - inputs / 600, 1e-8);
  EXPECT_NEAR(*ran.steps[0].masked_share, 1 - trained / inputs, 1e-12);
}

TEST(Sft, AModelOfABuiltInTemplateIsWrittenWithIt) {
  const TemporaryFolder folder;
  write_rows(folder / "rows.jsonl", 10);
  run(folder, "r", sft_config(1, 2, 1, false));
  EXPECT_TRUE(has(read_all(folder / "r" / "model" / "chat_template.jinja"), "<|im_start|>"));
}

TEST(Sft, EvaluatesTheAnswersOfConversations) {
  const TemporaryFolder folder;
  write_rows(folder / "rows.jsonl", 12);
  const Ran ran = run(folder, "r", sft_config(2, 2, 1, false));
  EvaluateOptions options;
  options.data = {(folder / "rows.jsonl").string()};
  const Evaluation e = evaluate(folder / "r" / "model", options);
  EXPECT_EQ(e.rows.size(), 12U);
  EXPECT_EQ(e.bytes, 0);
  ASSERT_EQ(e.notes.size(), 1U);
  EXPECT_TRUE(has(e.notes[0], "12 rows, 12 used")) << e.notes[0];
  // The completions of write_rows and their <|im_end|>.
  std::int64_t trained = 0;
  for (int r = 0; r < 12; ++r) trained += 1 + r * 5 % 17 + 10;
  EXPECT_EQ(e.tokens, trained);
  double sum = 0, weight = 0;
  for (const RowLoss& row : e.rows) {
    sum += row.loss * row.weight;
    weight += row.weight;
  }
  EXPECT_NEAR(e.loss, sum / weight, 1e-12 * e.loss);
}

}  // namespace
}  // namespace mantissa::api
