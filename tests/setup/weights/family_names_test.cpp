// Names of weights in files of each family: whole models, bare trunks, tied heads next to their embedding,
// tensors that follow from the config, and shards.
#include <gtest/gtest.h>

#include <utility>

#include "core/disk/temporary.h"
#include "engine/model/tiny_families.h"
#include "engine/runtime/device.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/model/family.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/engine/plan/compile.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::weights {
namespace {

using mantissa::testing::tiny_families;
using mantissa::testing::TinyFamily;

class FamilyNames : public test::TemporaryFolder, public ::testing::WithParamInterface<TinyFamily> {
 protected:
  void SetUp() override {
    test::TemporaryFolder::SetUp();
    set_tied(true);
  }

  void set_tied(bool tied) {
    nlohmann::json json = GetParam().config;
    json["tie_word_embeddings"] = tied;
    config = model::parse_model_config(json, GetParam().name);
    plan::CompileOptions options;
    options.longest_row = options.longest_leaf = 4;
    program =
        plan::compile(model::build_decode(config, 4, 1, 4), precision::Policy::parse("32-true"), options, {});
    stored.clear();
    names.clear();
    shapes.clear();
    for (const plan::Slot& slot : program.slots) {
      std::vector<std::int64_t> shape;
      for (const Dim& d : slot.shape.dims()) shape.push_back(d.size);
      add(slot.name, shape);
    }
  }

  /// A tensor with unique numbers.
  void add(const std::string& name, const std::vector<std::int64_t>& shape) {
    std::int64_t count = 1;
    for (const std::int64_t n : shape) count *= n;
    std::vector<float>& values = stored.emplace_back();
    for (std::int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<float>(stored.size()) + static_cast<float>(i) / 4096);
    names.push_back(name);
    shapes.push_back(shape);
  }
  /// Removes the family's prefix from every name that has it.
  void make_bare() {
    for (std::string& name : names) {
      if (name.starts_with(config.family->trunk_prefix)) name.erase(0, config.family->trunk_prefix.size());
    }
  }

  std::vector<io::TensorToWrite> tensors() const {
    std::vector<io::TensorToWrite> all;
    for (std::size_t i = 0; i < names.size(); ++i)
      all.push_back({names[i], io::Dtype::f32, shapes[i], std::as_bytes(std::span(stored[i])), nullptr});
    return all;
  }
  void write() { io::write_safetensors(folder / "model.safetensors", tensors()); }

  ModelSource source(const char* in = ".") const { return {config, folder / in}; }
  std::string refused() {
    write();
    return test::message_of<FileError>(
        [&] { open_weights(program, source(), mantissa::testing::plain_device()); });
  }

  /// Every slot contains the numbers given by add(), for every way of loading.
  void expect_loaded(const char* in = ".") {
    runtime::WeightSet copied(program, mantissa::testing::plain_device());
    load_weights(copied, source(in));
    const runtime::WeightSet mapped = open_weights(program, source(in), mantissa::testing::plain_device());
    for (std::size_t s = 0; s < program.slots.size(); ++s) {
      const plan::Slot& slot = program.slots[s];
      const auto count = static_cast<std::size_t>(slot.shape.count());
      const auto* master = static_cast<const float*>(copied.master(s).data);
      const auto* read = reinterpret_cast<const float*>(mapped.find(program, slot.master_buffer));
      EXPECT_TRUE(std::equal(stored[s].begin(), stored[s].end(), master, master + count)) << slot.name;
      EXPECT_TRUE(std::equal(stored[s].begin(), stored[s].end(), read, read + count)) << slot.name;
    }
  }

  model::ModelConfig config;
  plan::Program program;
  std::vector<std::vector<float>> stored;  // of the slots, followed by the file's other tensors
  std::vector<std::string> names;
  std::vector<std::vector<std::int64_t>> shapes;
};

INSTANTIATE_TEST_SUITE_P(Families, FamilyNames, ::testing::ValuesIn(tiny_families()),
                         [](const auto& i) { return i.param.name; });

TEST_P(FamilyNames, OfWholeModelsTiedAndUntied) {
  for (const bool tied : {true, false}) {
    set_tied(tied);
    EXPECT_EQ(std::ranges::count(names, config.family->head_weight), tied ? 0 : 1);
    write();
    expect_loaded();
  }
}

TEST_P(FamilyNames, OfBareTrunksLackThePrefix) {
  make_bare();
  EXPECT_EQ(std::ranges::count_if(
                names, [&](const std::string& n) { return n.starts_with(config.family->trunk_prefix); }),
            0);
  write();
  expect_loaded();
}

TEST_P(FamilyNames, OfABareTrunkDoNotMakeAnUntiedModel) {
  set_tied(false);
  make_bare();
  const auto head = std::ranges::find(names, config.family->head_weight) - names.begin();
  names.erase(names.begin() + head);
  shapes.erase(shapes.begin() + head);
  stored.erase(stored.begin() + head);
  EXPECT_NE(refused().find("tensor \"lm_head.weight\" is missing"), std::string::npos);
}

TEST_P(FamilyNames, MayIncludeATiedHeadAndWhatFollowsFromTheConfig) {
  const std::vector<std::int64_t> shape = {config.vocab_size, config.hidden_size};
  const auto embedding = std::ranges::find(shapes, shape) - shapes.begin();
  add("lm_head.weight", shape);
  const std::vector<float> other = std::exchange(stored.back(), stored[static_cast<std::size_t>(embedding)]);
  const std::size_t head = stored.size() - 1;
  const std::string layer = mantissa::testing::facts_of(config.model_type).layer;
  for (const std::string_view derived : config.family->derived) {
    const std::string dot = derived.starts_with(".") ? "" : ".";
    add(layer + dot + std::string(derived), {1, 1, 3, 3});
  }
  EXPECT_GT(names.size(), program.slots.size() + (config.family->derived.empty() ? 0 : 1));
  write();
  expect_loaded();
  make_bare();
  write();
  expect_loaded();
  stored[head] = other;
  const std::string message = refused();
  EXPECT_NE(message.find("tensor \"lm_head.weight\" differs from \""), std::string::npos) << message;
  EXPECT_NE(message.find("set tie_word_embeddings to false"), std::string::npos) << message;
}

TEST_P(FamilyNames, OfOtherTensorsAreRefused) {
  const std::string stranger = std::string(config.family->trunk_prefix) + "adapter.weight";
  add(stranger, {2, 2});
  const std::string message = refused();
  EXPECT_NE(message.find("tensor \"" + stranger + "\" is not a weight of this " + config.model_type),
            std::string::npos)
      << message;
}

TEST_P(FamilyNames, OfShardsComeFromTheirIndex) {
  for (const bool bare : {false, true}) {
    if (bare) make_bare();
    const std::vector<io::TensorToWrite> all = tensors();
    io::ModelToWrite model;
    model.config_json = "{}";
    model.tensors = all;
    model.shard_bytes = 4000;
    io::write_model(folder / "sharded", model);
    EXPECT_TRUE(std::filesystem::exists(folder / "sharded/model.safetensors.index.json"));
    expect_loaded("sharded");
  }
}

}  // namespace
}  // namespace mantissa::weights
