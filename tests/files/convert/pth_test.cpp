// Models through checkpoints of PyTorch and back.
#include "files/convert/gguf_testing.h"
#include "mantissa/core/base/error.h"
#include "mantissa/files/convert/origin.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/files/io/pth/torch_file.h"

namespace mantissa::convert {
namespace {

class PthModel : public GgufModel {
 protected:
  std::filesystem::path torch() const { return folder / "torch"; }
  const nlohmann::json& llama() const {
    static const std::vector<SmallModel> models = small_models();
    return models.front().config;
  }
  Result to(const std::filesystem::path& from, const std::filesystem::path& out, Layout layout,
            Change change = {}) const {
    return *convert({io::open_model(from), out, change, true, layout}, {});
  }
  void expect_equal(const std::filesystem::path& a, const std::filesystem::path& b) const {
    const io::WeightFiles before(a), after(b);
    ASSERT_EQ(before.tensors().size(), after.tensors().size());
    for (const io::TensorInfo& tensor : before.tensors()) {
      ASSERT_NE(after.find(tensor.name), nullptr) << tensor.name;
      EXPECT_EQ(after.find(tensor.name)->dtype, tensor.dtype) << tensor.name;
      EXPECT_EQ(values_of(before, tensor.name), values_of(after, tensor.name)) << tensor.name;
    }
  }
};

TEST_F(PthModel, EveryFormatComesBackWithTheSameBits) {
  for (const Scalar format : {Scalar::f64, Scalar::f32, Scalar::bf16, Scalar::f16}) {
    write(llama(), format, {{"tokenizer.json", "{}"}});
    to(in(), torch(), Layout::pth);
    EXPECT_TRUE(std::filesystem::exists(torch() / "pytorch_model.bin"));
    EXPECT_EQ(test::contents_of(torch() / "tokenizer.json"), "{}");
    expect_equal(in(), torch());
    to(torch(), back(), Layout::hugging_face);
    EXPECT_FALSE(std::filesystem::exists(back() / "pytorch_model.bin"));
    expect_equal(in(), back());
    to(torch(), folder / "one.pth", Layout::pth);
    expect_equal(in(), folder / "one.pth");
  }
}

TEST_F(PthModel, TheSameModelGivesTheSameBytesOnAnyNumberOfThreads) {
  write(llama());
  kernels::Context one, two;
  one.threads = 1;
  two.threads = 2;
  const std::filesystem::path a = folder / "a.pth", b = folder / "b.pth";
  convert({io::open_model(in()), a, {Scalar::bf16}, true, Layout::pth}, one);
  convert({io::open_model(in()), b, {Scalar::bf16}, true, Layout::pth}, two);
  EXPECT_EQ(test::contents_of(a), test::contents_of(b));
}

TEST_F(PthModel, TheOriginOfTheValuesIsKept) {
  write(llama());
  to(in(), torch(), Layout::pth, {Scalar::bf16});
  to(torch(), back(), Layout::hugging_face, {Scalar::f32});
  EXPECT_EQ(io::WeightFiles(back()).metadata().at(kRoundedToKey), "bf16");
  EXPECT_EQ(json_of(torch() / "config.json")["torch_dtype"], "bfloat16");
}

TEST_F(PthModel, AGgufFileBecomesACheckpoint) {
  write(llama());
  convert_to_gguf();
  to(file(), torch(), Layout::pth);
  expect_equal(in(), torch());
  to(file(), folder / "one.pt", Layout::pth);
  expect_equal(in(), folder / "one.pt");
}

TEST_F(PthModel, TheInputAndFoldersAreNotReplaced) {
  write(llama());
  EXPECT_THROW(to(in(), in(), Layout::pth), FileError);
  std::filesystem::create_directory(folder / "dir.pth");
  EXPECT_THROW(to(in(), folder / "dir.pth", Layout::pth), FileError);
}

TEST_F(PthModel, OneFileBecomesOneFileWithANote) {
  write(llama());
  to(in(), folder / "one.pth", Layout::pth);
  const auto notes = [&](const char* out, Layout layout) {
    return convert({io::open_model(folder / "one.pth"), folder / out, {}, false, layout}, {})->notes;
  };
  const std::vector<std::string> found = notes("out", Layout::hugging_face);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NE(
      found[0].find("out is one safetensors file; for a model directory, give the directory of one.pth"),
      std::string::npos)
      << found[0];
  EXPECT_TRUE(std::filesystem::is_regular_file(folder / "out"));
  EXPECT_TRUE(notes("out.safetensors", Layout::hugging_face).empty());
  EXPECT_TRUE(notes("directory", Layout::pth).empty());
}

const InspectedTensor& row_of(const Inspection& seen, const std::string& name) {
  const auto found =
      std::ranges::find(seen.tensors, name, [](const InspectedTensor& t) { return t.tensor.name; });
  if (found == seen.tensors.end()) throw std::out_of_range(name);
  return *found;
}

TEST(InspectedPth, NamesSharedStoragesAndStrides) {
  const std::filesystem::path file =
      std::filesystem::path(MANTISSA_SOURCE_DIR) / "tests/files/io/pth/views_2.pth";
  const Inspection seen = inspect(file, {});
  struct Expected {
    const char *name, *shares;
    bool same;
    std::vector<std::int64_t> strides;
  };
  // base is [4, 3, 2]; parameter has a storage of its own.
  const Expected all[] = {
      {"base", "", false, {}},       {"same", "base", true, {}},     {"permuted", "base", false, {1, 6, 2}},
      {"row", "base", false, {}},    {"column", "base", false, {6}}, {"expanded", "base", false, {0, 2, 1}},
      {"scalar", "base", false, {}}, {"empty", "", false, {}},       {"parameter", "", false, {}}};
  for (const Expected& e : all) {
    const TensorPlace& place = row_of(seen, e.name).place;
    EXPECT_EQ(place.shares_with, e.shares) << e.name;
    EXPECT_EQ(place.same_elements, e.same) << e.name;
    EXPECT_EQ(place.strides, e.strides) << e.name;
  }
  const std::string text = to_text(seen);
  EXPECT_NE(text.find("the same elements as base"), std::string::npos) << text;
  EXPECT_NE(text.find("shares the storage of base; strides [1, 6, 2]"), std::string::npos) << text;
  const nlohmann::json json = nlohmann::json::parse(to_json(seen));
  EXPECT_EQ(json["tensors"][2]["strides"], (nlohmann::json{1, 6, 2})) << json["tensors"][2];
}

TEST(InspectedPth, NotesEntriesThatAreNotTensors) {
  const std::filesystem::path file =
      std::filesystem::path(MANTISSA_SOURCE_DIR) / "tests/files/io/pth/nested_2.pth";
  const Inspection seen = inspect(file, {});
  const std::string text = to_text(seen);
  EXPECT_NE(
      text.find("note    " + file.string() + ": only the entry \"model\" is read; left out: \"optimizer\"\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("skipped, since they are not tensors: \"bytes\", \"number\""), std::string::npos)
      << text;
  EXPECT_EQ(nlohmann::json::parse(to_json(seen))["notes"].size(), 2U);
}

}  // namespace
}  // namespace mantissa::convert
