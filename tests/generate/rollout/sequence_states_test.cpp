// The states that models keep of sequences, of positions (key-value caches) and of prefixes (recurrences):
// sequences that share them, that continue from them, and their files.
#include "mantissa/generate/rollout/sequence_states.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/disk/temporary.h"
#include "engine/runtime/device.h"
#include "engine/runtime/program.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/model/adapter.h"
#include "mantissa/generate/rollout/complete.h"
#include "mantissa/generate/rollout/kept_sequence.h"
#include "mantissa/setup/programs/decoding.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::rollout::states_test {
namespace {

using mantissa::testing::best_device;

constexpr std::int32_t kVocabulary = 29;
/// Policies under which a model of the family is run.
std::vector<const char*> policies(bool recurrent) {
  std::vector<const char*> all = {"64-true",
                                  "32-true",
                                  "bf16-mixed",
                                  "fp8-hybrid",
                                  "bf16-mixed state=bf16",
                                  "bf16-mixed; *: rounding=stochastic"};
  if (recurrent)
    all.push_back(R"(bf16-mixed; {match = "*", op = "recurrence", rounding = "stochastic", state = "bf16"})");
  return all;
}

/// Golden models: one with a recurrence, one with a key-value cache.
class States : public test::TemporaryFolder, public ::testing::WithParamInterface<const char*> {
 protected:
  weights::ModelSource source(const char* name = nullptr) const {
    return weights::find_model(std::filesystem::path(MANTISSA_SOURCE_DIR) / "tests/golden/families" /
                               (name == nullptr ? GetParam() : name));
  }
  bool rewinds() const { return std::string(GetParam()) != "rwkv7"; }

  std::vector<Generation> run(const char* policy, std::span<const Request> requests, const GenerateOptions& o,
                              std::int64_t streams = 1) const {
    return complete(source(), precision::Policy::parse(policy), requests, o, streams, best_device());
  }
};

std::vector<std::int32_t> ids_of(std::int64_t length, std::int32_t seed) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < length; ++i)
    ids.push_back(static_cast<std::int32_t>((seed + i * (i + 3)) % kVocabulary));
  return ids;
}

GenerateOptions drawing(std::int64_t tokens) {
  GenerateOptions o;
  o.max_new_tokens = tokens;
  o.sampling = {.temperature = 1.2, .top_k = 20, .top_p = 0.98, .seed = 5};
  return o;
}

void expect_same(const Generation& got, const Generation& want) {
  EXPECT_EQ(got.ids, want.ids);
  EXPECT_EQ(got.log_probs, want.log_probs);
}

TEST_P(States, OfEqualPromptsAreSharedWithTheBitsOfEachAlone) {
  std::vector<Request> all;
  for (std::int64_t s = 0; s < 5; ++s) {
    all.push_back({ids_of(9, 2), s});
    all.push_back({ids_of(1, 4), s});
    all.push_back({ids_of(600, 3), s});  // more than a chunk of a prompt
  }
  for (const char* policy : policies(!rewinds())) {
    SCOPED_TRACE(policy);
    const std::vector<Generation> want = run(policy, all, drawing(6));
    for (const std::int64_t streams : {2, 4, 16}) {
      SCOPED_TRACE(streams);
      const std::vector<Generation> got = run(policy, all, drawing(6), streams);
      for (std::size_t i = 0; i < all.size(); ++i) expect_same(got[i], want[i]);
    }
  }
}

/// A sequence that continues from kept states gives what it gives without a break.
TEST_P(States, ContinueASequenceWithItsBits) {
  for (const char* policy : policies(!rewinds())) {
    SCOPED_TRACE(policy);
    for (const std::int64_t length : {1, 15, 16, 17, 530}) {
      SCOPED_TRACE(length);
      GenerateOptions keep = drawing(4);
      keep.keep_states = true;
      const Request first{ids_of(length, 3), 0};
      const Generation begun = std::move(run(policy, {&first, 1}, keep).front());
      ASSERT_NE(begun.states, nullptr);
      EXPECT_EQ(begun.states->fed, length + 3) << "the last token was not fed";
      std::vector<std::int32_t> longer = begun.states->ids;
      for (const std::int32_t id : ids_of(3, 8)) longer.push_back(id);
      std::vector<Request> continued, whole;
      for (std::int64_t s = 0; s < 3; ++s) {
        // Random bits are keyed by the sequence, which the states belong to.
        const std::int64_t sequence = std::string(policy).find("stochastic") == std::string::npos ? s : 0;
        continued.push_back({longer, sequence, begun.states->fed, begun.states});
        whole.push_back({longer, sequence});
      }
      const std::vector<Generation> want = run(policy, whole, drawing(5));
      for (const std::int64_t streams : {1, 2}) {
        const std::vector<Generation> got = run(policy, continued, drawing(5), streams);
        for (std::size_t i = 0; i < whole.size(); ++i) expect_same(got[i], want[i]);
      }
    }
  }
}

TEST_P(States, SurviveAFile) {
  GenerateOptions keep = drawing(4);
  keep.keep_states = true;
  const Request first{ids_of(12, 3), 0};
  const precision::Policy policy = precision::Policy::parse("bf16-mixed");
  const std::shared_ptr<const SequenceStates> states = run("bf16-mixed", {&first, 1}, keep).front().states;
  const StatesOrigin origin = origin_of(source(), policy, best_device());
  EXPECT_EQ(origin.policy, "bf16-mixed");
  const std::filesystem::path file = folder / "states.safetensors";
  write_states(file, *states, origin, {{"messages", "[]"}});
  const StatesFile read = read_states(file);
  EXPECT_EQ(read.notes, (StatesNotes{{"messages", "[]"}}));
  EXPECT_EQ(read.states.ids, states->ids);
  EXPECT_EQ(read.states.fed, states->fed);
  ASSERT_EQ(read.states.states.size(), states->states.size());
  for (const SequenceStates::State& s : states->states) {
    const auto same = std::ranges::find(read.states.states, s.name, &SequenceStates::State::name);
    ASSERT_NE(same, read.states.states.end()) << s.name;
    EXPECT_EQ(same->type, s.type);
    EXPECT_EQ(same->shape, s.shape);
    EXPECT_EQ(same->bytes, s.bytes);
  }
  const std::int64_t vocabulary = source().config.vocab_size;
  check_model(read, origin, vocabulary);
  StatesFile strange = read;
  strange.states.ids[2] = static_cast<std::int32_t>(vocabulary);
  EXPECT_THROW(check_model(strange, origin, vocabulary), FileError);
  EXPECT_THROW(check_model(read, origin_of(source("rwkv7-tied"), policy, best_device()), vocabulary),
               FileError);
}

/// Returns the message of checking the states of a file under `policy`.
std::string refusal(const StatesFile& file, const weights::ModelSource& source, const char* policy) {
  try {
    check_states(file.states, *programs::compile_decode(source.config, precision::Policy::parse(policy), 64,
                                                        best_device()));
    return "accepted";
  } catch (const Error& e) {
    return e.what();
  }
}

TEST_P(States, OfFormatsThatFilesDoNotNameSurviveAFile) {
  GenerateOptions keep = drawing(4);
  keep.keep_states = true;
  const Request first{ids_of(12, 3), 0};
  const char* const text = "tf32 state=tf32 kv=tf32";
  const precision::Policy policy = precision::Policy::parse(text);
  const std::shared_ptr<const SequenceStates> states = run(text, {&first, 1}, keep).front().states;
  const std::filesystem::path file = folder / "states.safetensors";
  write_states(file, *states, origin_of(source(), policy, best_device()), {});
  const StatesFile read = read_states(file);
  EXPECT_EQ(refusal(read, source(), text), "accepted");
  StatesFile changed = read;
  changed.states.states.front().type = Scalar::f64;
  const std::string message = refusal(changed, source(), text);
  EXPECT_NE(message.find("is f64, and the policy of the file keeps it in "), std::string::npos) << message;
}

TEST_P(States, OfAnotherPolicyOrModelAreRefused) {
  GenerateOptions keep = drawing(4);
  keep.keep_states = true;
  const Request first{ids_of(12, 3), 0};
  StatesFile file;
  file.states = *run("bf16-mixed", {&first, 1}, keep).front().states;
  file.states.where = "my.states";
  file.states.policy = "bf16-mixed";
  EXPECT_EQ(refusal(file, source(), "bf16-mixed"), "accepted");
  const std::string wider = refusal(file, source(), "32-true");
  EXPECT_NE(wider.find("my.states: \"model.layers."), std::string::npos) << wider;
  EXPECT_NE(wider.find("is bf16, and this policy keeps it in f32. Fix: --precision 'bf16-mixed'"),
            std::string::npos)
      << wider;
  // The same formats of states, but not the same values.
  const std::string sums = refusal(file, source(), "bf16-mixed accumulate=bf16");
  EXPECT_NE(sums.find("made under another policy"), std::string::npos) << sums;
  const std::string other = refusal(file, source(rewinds() ? "rwkv7" : "qwen3"), "bf16-mixed");
  EXPECT_NE(other.find("is missing, which this model keeps"), std::string::npos) << other;
  file.states.states.back().shape.back() -= 1;
  const std::string shape = refusal(file, source(), "bf16-mixed");
  EXPECT_NE(shape.find("but this model keeps ["), std::string::npos) << shape;
}

/// What determines values besides the files of the weights.
TEST_P(States, OfAnotherAdapterBaseOrConfigAreThoseOfAnotherModel) {
  const precision::Policy policy = precision::Policy::parse("32-true");
  const weights::ModelSource plain = source();
  const std::string model = origin_of(plain, policy, best_device()).model;
  EXPECT_EQ(origin_of(source(), policy, best_device()).model, model);
  weights::ModelSource other = source();
  nlohmann::json config = plain.config.source;
  config[rewinds() ? "rms_norm_eps" : "norm_eps"] = 0.5;
  other.config = model::parse_model_config(config, "here");
  EXPECT_NE(origin_of(other, policy, best_device()).model, model);
  other = source();
  other.config.base = QuantFormat::int8;
  EXPECT_NE(origin_of(other, policy, best_device()).model, model);
  other = source();
  model::Adapter adapter;
  adapter.layers["a"] = {4, 8};
  other.config.adapter = std::make_shared<const model::Adapter>(adapter);
  const std::string adapted = origin_of(other, policy, best_device()).model;
  EXPECT_NE(adapted, model);
  adapter.layers["a"].alpha = 4;
  other.config.adapter = std::make_shared<const model::Adapter>(adapter);
  EXPECT_NE(origin_of(other, policy, best_device()).model, adapted);
  other.weights.clear();
  EXPECT_THROW(origin_of(other, policy, best_device()), ConfigError) << "no weights have no hash";
}

TEST_P(States, OfAConversationAreFedOnlyItsNewTokens) {
  const weights::ModelSource model = source();
  const precision::Policy policy = precision::Policy::parse("32-true");
  KeptSequence kept(model, policy, best_device());
  std::vector<std::int32_t> prompt = ids_of(10, 1);
  const Continuation first = kept.extend(prompt, drawing(5));
  EXPECT_EQ(first.kept, 0);
  prompt.insert(prompt.end(), first.generation.ids.begin(), first.generation.ids.end());
  const std::vector<std::int32_t> before = prompt;
  for (const std::int32_t id : ids_of(7, 5)) prompt.push_back(id);
  const Continuation second = kept.extend(prompt, drawing(5));
  EXPECT_EQ(second.kept, 14);
  // An earlier prompt: states of prefixes begin again.
  const Continuation again = kept.extend(before, drawing(5));
  EXPECT_EQ(again.kept, rewinds() ? 14 : 0);
  for (const auto& [ids, made] : {std::pair{prompt, &second}, {before, &again}}) {
    KeptSequence fresh(model, policy, best_device());
    expect_same(made->generation, fresh.extend(ids, drawing(5)).generation);
  }
  // From states, in another object.
  const std::optional<SequenceStates> states = kept.states();
  ASSERT_TRUE(states);
  KeptSequence restored(model, policy, best_device());
  restored.restore(*states);
  std::vector<std::int32_t> longer = states->ids;
  for (const std::int32_t id : ids_of(4, 9)) longer.push_back(id);
  const Continuation continued = restored.extend(longer, drawing(5));
  EXPECT_EQ(continued.kept, std::ssize(states->ids));
  expect_same(continued.generation, kept.extend(longer, drawing(5)).generation);
}

/// The states are those after an unknown number of tokens, if they cannot rewind.
TEST_P(States, AfterAnInterruptAreNotContinued) {
  const weights::ModelSource model = source();
  const precision::Policy policy = precision::Policy::parse("32-true");
  KeptSequence kept(model, policy, best_device());
  std::stop_source stop;
  GenerateOptions options = drawing(9);
  options.interrupt = stop.get_token();
  int count = 0;
  options.on_token = [&](std::size_t, std::int32_t, double) {
    if (++count == 3) stop.request_stop();
    return true;
  };
  const std::vector<std::int32_t> prompt = ids_of(10, 1);
  const Continuation cut = kept.extend(prompt, options);
  ASSERT_FALSE(cut.generation.ended);
  std::vector<std::int32_t> longer = prompt;
  longer.insert(longer.end(), cut.generation.ids.begin(), cut.generation.ids.end());
  longer.push_back(7);
  const Continuation next = kept.extend(longer, drawing(5));
  EXPECT_EQ(next.kept, rewinds() ? 12 : 0);
  KeptSequence fresh(model, policy, best_device());
  expect_same(next.generation, fresh.extend(longer, drawing(5)).generation);
}

INSTANTIATE_TEST_SUITE_P(Models, States, ::testing::Values("rwkv7", "qwen3"),
                         [](const auto& i) { return std::string(i.param); });

using StatesFiles = test::TemporaryFolder;

TEST_F(StatesFiles, OfAnotherKindAreRefused) {
  const std::filesystem::path model =
      std::filesystem::path(MANTISSA_SOURCE_DIR) / "tests/golden/families/rwkv7/model.safetensors";
  try {
    read_states(model);
    FAIL() << "accepted";
  } catch (const FileError& e) {
    EXPECT_NE(std::string(e.what()).find("is not a file of states. Fix: write it again with --save-state"),
              std::string::npos)
        << e.what();
  }
  SequenceStates states;
  states.ids = {1, 2, 3};
  states.fed = 1;  // two were not fed
  const std::filesystem::path file = folder / "states";
  write_states(file, states, {}, {});
  EXPECT_THROW(read_states(file), FileError);
  states.fed = 2;
  write_states(file, states, {}, {});
  EXPECT_EQ(read_states(file).states.fed, 2);
  check_states_place(file, false, {});
  std::ofstream(folder / "text") << "mine";
  EXPECT_THROW(check_states_place(folder / "text", false, {}), FileError);
  check_states_place(folder / "text", true, {});
}

}  // namespace
}  // namespace mantissa::rollout::states_test
