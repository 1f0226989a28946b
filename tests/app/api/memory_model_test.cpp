// Weights from and to memory, and tokens as they are generated.
#include <gtest/gtest.h>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::api {
namespace {

using testing::into;
using testing::TemporaryFolder;
using testing::tiny_config;

Summary run_folder(const std::filesystem::path& out, const std::string& policy) {
  TrainOptions o = into(out);
  o.return_weights = true;
  return train(Config::parse(tiny_config(4, policy)), o);
}

GenerateOptions sampled(const std::string& policy) {
  GenerateOptions o;
  o.prompt = "A very ";
  o.samples = 2;
  o.max_new_tokens = 12;
  o.temperature = 1;
  o.precision.policy = policy;
  return o;
}

TraceOptions traced(const Model& model, const std::string& policy) {
  TraceOptions o;
  o.model = model;
  o.ids = {{72, 101, 108, 108, 111}};
  o.grads = true;
  o.precision.policy = policy;
  return o;
}

std::string refused(const Model& model) {
  try {
    generate(model, sampled("32-true"));
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

class MemoryModel : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Policies, MemoryModel,
                         ::testing::Values("32-true", "bf16-mixed", "bf16-true", "fp8-hybrid"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST_P(MemoryModel, GivesTheBitsOfItsDirectory) {
  const TemporaryFolder folder;
  const Summary s = run_folder(folder / "run", GetParam());
  ASSERT_NE(s.weights, nullptr);
  const Model memory(s.model_config, s.weights), directory(s.model);
  const Prompt prompt{"A very ", {}};
  const Generations there = generate(directory, {&prompt, 1}, sampled(GetParam()));
  const Generations here = generate(memory, {&prompt, 1}, sampled(GetParam()));
  ASSERT_GT(there.all.size(), 0U);
  ASSERT_EQ(here.all.size(), there.all.size());
  for (std::size_t i = 0; i < here.all.size(); ++i) {
    EXPECT_FALSE(there.all[i].ids.empty());
    EXPECT_EQ(here.all[i].ids, there.all[i].ids);
    EXPECT_EQ(here.all[i].log_probs, there.all[i].log_probs);
  }
  const Trace a = trace(traced(directory, GetParam())), b = trace(traced(memory, GetParam()));
  ASSERT_GT(a.tensors.size(), 10U);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_EQ(a.tensors[i].name, b.tensors[i].name);
    EXPECT_EQ(a.tensors[i].bytes, b.tensors[i].bytes) << a.tensors[i].name;
  }
  Precision precision;
  precision.policy = GetParam();
  EXPECT_EQ(evaluate(memory, {"kk"}, "auto", 32, 0, precision).loss,
            evaluate(directory, {"kk"}, "auto", 32, 0, precision).loss);
}

TEST_P(MemoryModel, IsTrainedAsItsDirectoryIs) {
  const TemporaryFolder folder;
  const Summary s = run_folder(folder / "first", GetParam());
  TrainOptions o = into(folder / "memory");
  o.weights = s.weights;
  const Summary memory = train(Config::parse(tiny_config(4, GetParam())), o);
  const std::string sizes = tiny_config(4, GetParam());
  const std::size_t model = sizes.find("[model]"), data = sizes.find("[data]");
  const std::string from_path =
      sizes.substr(0, model) + "[model]\npath = \"" + s.model.string() + "\"\n" + sizes.substr(data);
  EXPECT_EQ(memory.weights_xxh64, train(Config::parse(from_path), into(folder / "path")).weights_xxh64);
  EXPECT_NE(memory.weights_xxh64, s.weights_xxh64);
}

TEST(MemoryWeights, LetARunReplaceTheModelWhoseConfigItReads) {
  const TemporaryFolder folder;
  const Summary s = run_folder(folder / "run", "32-true");
  const std::string sizes = tiny_config(4, "32-true");
  const Config again = Config::parse(sizes.substr(0, sizes.find("[model]")) + "[model]\npath = \"" +
                                     s.model.string() + "\"\n" + sizes.substr(sizes.find("[data]")));
  TrainOptions o = into(folder / "run");
  o.overwrite = true;
  EXPECT_THROW(train(again, o), FileError);
  o.weights = s.weights;
  EXPECT_NE(train(again, o).weights_xxh64, s.weights_xxh64);
}

TEST(MemoryWeights, AreCheckedAsFilesAre) {
  const TemporaryFolder folder;
  const Summary s = run_folder(folder / "run", "32-true");
  EXPECT_EQ(refused({s.model_config, s.weights}), "");
  const auto changed = [&](const auto& change) {
    auto weights = std::make_shared<Weights>(*s.weights);
    change(*weights);
    return refused({s.model_config, weights});
  };
  EXPECT_NE(changed([](Weights& w) { w.tensors.pop_back(); }).find("is missing"), std::string::npos);
  EXPECT_NE(changed([](Weights& w) { w.tensors.front().bytes.pop_back(); }).find("bytes"), std::string::npos);
  EXPECT_NE(changed([](Weights& w) { w.tensors.front().dtype = "F33"; }).find("F33"), std::string::npos);
  EXPECT_NE(changed([](Weights& w) { w.tensors.push_back(w.tensors.front()); }).find("twice"),
            std::string::npos);
  EXPECT_NE(changed([](Weights& w) { w.tensors.front().name = "other"; }).find("other"), std::string::npos);
  EXPECT_NE(refused({"{", s.weights}).find("config.json in memory"), std::string::npos);
}

TEST(Tokens, AreReportedAsTheyAreGeneratedAndMayEndTheirSequence) {
  const TemporaryFolder folder;
  const Summary s = run_folder(folder / "run", "32-true");
  const std::vector<Prompt> prompts = {{"A very ", {}}, {"Zoey ", {}}};
  GenerateOptions o = sampled("32-true");
  const Generations whole = generate(s.model, prompts, o);
  std::vector<Generation> told(4);
  o.on_token = [&](const Token& token) {
    Generation& g = told.at(token.prompt * 2 + static_cast<std::size_t>(token.sample));
    g.ids.push_back(token.id);
    g.log_probs.push_back(token.log_prob);
    g.text += token.text;
    return token.prompt == 0 || g.ids.size() < 3;
  };
  const Generations cut = generate(s.model, prompts, o);
  EXPECT_FALSE(cut.interrupted);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(told[i].ids, cut.all[i].ids);
    EXPECT_EQ(told[i].log_probs, cut.all[i].log_probs);
    // The bytes of an incomplete character are held back where the callback ends a sequence.
    EXPECT_TRUE(cut.all[i].text.starts_with(told[i].text));
    if (i >= 2) continue;
    EXPECT_EQ(told[i].text, cut.all[i].text);
  }
  EXPECT_EQ(cut.all[0].ids, whole.all[0].ids);
  EXPECT_EQ(cut.all[3].ids.size(), 3U);
  EXPECT_TRUE(std::equal(cut.all[3].ids.begin(), cut.all[3].ids.end(), whole.all[3].ids.begin()));
}

TEST(Stop, KeepsExactlyTheCompletedWork) {
  const TemporaryFolder folder;
  const Summary s = run_folder(folder / "run", "32-true");
  std::stop_source stopped;
  stopped.request_stop();
  const std::stop_token stop = stopped.get_token();

  const Summary trained = train(Config::parse(tiny_config(4, "32-true")), into(folder / "other"), {}, stop);
  EXPECT_TRUE(trained.interrupted);
  EXPECT_EQ(trained.steps, 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "other" / "model"));

  const Evaluation e = evaluate(s.model, {"kk"}, "auto", 32, 10, {}, {}, stop);
  EXPECT_TRUE(e.interrupted);
  EXPECT_EQ(e.tokens, 0);
  EXPECT_EQ(e.puzzles, 0);

  TraceOptions t = traced(s.model, "32-true");
  t.out = folder / "trace.safetensors";
  EXPECT_TRUE(trace(t, stop).interrupted);
  EXPECT_FALSE(std::filesystem::exists(t.out));

  ConvertOptions c;
  c.in = s.model;
  c.out = folder / "converted";
  c.dtype = "bf16";
  EXPECT_TRUE(convert(c, stop).interrupted);
  EXPECT_FALSE(std::filesystem::exists(c.out));

  GenerateOptions o = sampled("32-true");
  const Generation whole = generate(s.model, o);
  std::stop_source in_the_middle;
  std::size_t count = 0;
  o.samples = 1;
  o.on_token = [&](const Token&) {
    if (++count == 3) in_the_middle.request_stop();
    return true;
  };
  const Prompt prompt{o.prompt, {}};
  const Generations g = generate(s.model, {&prompt, 1}, o, in_the_middle.get_token());
  EXPECT_TRUE(g.interrupted);
  EXPECT_EQ(g.all.front().ids, std::vector<std::int32_t>(whole.ids.begin(), whole.ids.begin() + 3));
}

}  // namespace
}  // namespace mantissa::api
